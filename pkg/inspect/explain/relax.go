// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// wish is something that a pod could do without.
type wish struct {
	name string
	// value tells it from a wish of the same name that other members of a gang have; empty where values of an
	// annotation are one wish, see each.
	value string
	// by are the members of a gang that have it, and who their names; nil: all.
	by  []*question
	who []string
	// cause is why a pod fits no node because of the wish alone.
	cause Cause
	// key is that of the annotation that it is; empty if it is none.
	key string
	// fix is the annotation to set where the wish is that there is none.
	fix  annotation
	drop func(*v1.Pod)             // nil of a wish that is the gang's alone
	gang func(*gangrequest.Wishes) // nil of a wish that is the pod's
	// resource is what is asked an amount of; empty if it is none.
	resource v1.ResourceName
	// of says that members of a gang like this one ask for it, empty if they do not. Of the besides alone.
	of func(*question) string
}

// causesOfKeys are the causes of annotations. Those that decide about no node's fit are not there.
var causesOfKeys = map[string]Cause{
	podrequest.TopologyPolicyKey: causeOf(placement.FewInNUMA),
	podrequest.NUMAAffinityKey:   causeOf(placement.NoNUMACPU),
	podrequest.MinLinkKey:        causeOf(placement.FewLinked),
	podrequest.MinBandwidthKey:   causeOf(placement.LowBandwidth),
	podrequest.GPUModelKey:       causeOf(placement.FewSuitableGPUs),
	podrequest.MinGPUMemoryKey:   causeOf(placement.FewSuitableGPUs),
}

// maxTaints bounds the taints that are tried.
const maxTaints = 3

// relaxations are what the pod would get now if it dropped one of its wishes, or all of them
// where no single one helps. Wishes that change nothing are left out.
func (x *podAsk) relaxations() (out []Relaxation) {
	wishes := x.wishesOf()
	for _, w := range wishes {
		if r := x.relaxed(w); r != nil {
			out = append(out, *r)
		}
	}
	if len(out) == 0 && len(wishes) > 1 {
		all := together(wishes)
		all.name = "all of them"
		if r := x.relaxed(all); r != nil {
			out = append(out, *r)
		}
	}
	if r := x.fewer(); r != nil {
		out = append(out, *r)
	}
	return out
}

// wishesOf are the pod's, in the order in which they are tried.
func (x *podAsk) wishesOf() (out []wish) {
	for _, key := range podrequest.InputKeys() {
		if value, ok := x.q.pod.Annotations[key]; ok {
			out = append(out, wish{
				name: key + ": " + asRead(key, value), value: asRead(key, value), cause: causesOfKeys[podrequest.CanonicalKey(key)], key: key, drop: func(p *v1.Pod) { delete(p.Annotations, key) },
			})
		}
	}
	if a := x.q.pod.Spec.Affinity; len(x.q.pod.Spec.NodeSelector) > 0 || a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		out = append(out, wish{name: "the node selector and required node affinity", value: selectionOf(&x.q.pod.Spec), cause: NotSelected, drop: func(p *v1.Pod) {
			p.Spec.NodeSelector = nil
			if p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil {
				p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			}
		}})
	}
	for _, taint := range x.taints() {
		out = append(out, wish{name: "not to tolerate the taint " + taint.ToString(), cause: Tainted, drop: func(p *v1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: taint.Key, Operator: v1.TolerationOpExists, Effect: taint.Effect})
		}})
	}
	return out
}

// selectionOf is the node selector and the affinity as text.
func selectionOf(s *v1.PodSpec) string { return fmt.Sprint(s.NodeSelector, s.Affinity.String()) }

// asRead is an annotation's value; of a bandwidth in another unit also what it is in GB/s.
func asRead(key, value string) string {
	if podrequest.CanonicalKey(key) != podrequest.MinBandwidthKey {
		return value
	}
	kBps, err := nvtopo.ParseBandwidth(value)
	if text := plain(nvtopo.GBps(kBps)); err == nil && value != text && strings.ReplaceAll(value, " ", "") != text+"GB/s" {
		return value + " (" + text + " GB/s)"
	}
	return value
}

// taints are those that keep the pod off nodes.
func (x *podAsk) taints() (out []v1.Taint) {
	for _, n := range x.nodes {
		why, taint := x.q.shape.Eligible.Judge(n.object)
		same := func(t v1.Taint) bool { return t.MatchTaint(&taint) }
		if why == placement.Tainted && !strings.HasPrefix(taint.Key, nodeConditionTaints) && len(out) < maxTaints && !slices.ContainsFunc(out, same) {
			out = append(out, taint)
		}
	}
	return out
}

// relaxed is what the pod gets without a wish; nil if no node takes it even then.
func (x *podAsk) relaxed(w wish) *Relaxation {
	pod := x.q.pod.DeepCopy()
	w.drop(pod)
	less, err := x.question(pod)
	if err != nil {
		return nil
	}
	r := &Relaxation{Wish: w.name}
	for _, n := range x.nodes {
		if len(n.obstacles(less, x.now)) > 0 {
			continue
		}
		r.Nodes++
		if set := n.set(less, x.now); r.Node == "" || set.betterThan(r.Gets) {
			r.Node, r.Gets = n.object.Name, set
		}
	}
	if r.Nodes == 0 {
		return nil
	}
	return r
}

// fewer is the greatest number of devices that some node would give the pod now. Only for a pod
// whose devices are all of one container: of others nobody knows which to ask for less.
func (x *podAsk) fewer() *Relaxation {
	if len(x.q.demand.Containers) != 1 || len(x.q.demand.Resources) != 1 {
		return nil
	}
	name, asks := v1.ResourceName(x.q.resource()), x.q.demand.Resources[0].Count
	most := 0
	for _, node := range x.nodes {
		most = max(most, node.offers(x.q.resource()))
	}
	for n := min(asks-1, most, nvtopo.MaxGPUs); n > 0; n-- {
		w := wish{name: fmt.Sprintf("%d of the %d %s", asks-n, asks, name), cause: FewGPUs, drop: func(p *v1.Pod) {
			for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
				for _, amounts := range []v1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
					if _, ok := amounts[name]; ok {
						amounts[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
					}
				}
			}
		}}
		if r := x.relaxed(w); r != nil {
			return r
		}
	}
	return nil
}

// lowered is the wish for another value of the annotation instead.
func (w *wish) lowered(value string) wish {
	return wish{cause: w.cause, by: w.by, drop: func(p *v1.Pod) {
		if _, ok := p.Annotations[w.key]; ok {
			p.Annotations[w.key] = value
		}
	}}
}

// isOf reports whether a member of a gang has the wish.
func (w *wish) isOf(q *question) bool { return w.by == nil || slices.Contains(w.by, q) }

// without is the pod without those of some wishes that are its own.
func (q *question) without(dropped []wish) *v1.Pod {
	pod := q.pod.DeepCopy()
	for _, w := range dropped {
		if w.drop != nil && w.isOf(q) {
			w.drop(pod)
		}
	}
	return pod
}

// together is the wish that drops all of some.
func together(wishes []wish) wish {
	return wish{drop: func(p *v1.Pod) {
		for _, w := range wishes {
			if w.drop != nil {
				w.drop(p)
			}
		}
	}}
}

func named(wishes []wish) string { return strings.Join(namesOf(wishes), " and ") }

func namesOf(wishes []wish) (out []string) {
	for _, w := range wishes {
		out = append(out, w.name)
	}
	return out
}
