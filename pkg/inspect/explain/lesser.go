// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// lesser says what to do about the wishes without which there is room: all of them in one step, each by the
// greatest value, of those that are tried, with which there is room. others are what would do as well.
func (c *cluster) lesser(needed []wish, shapes []*question, fits func([]wish) bool, others ...string) string {
	steps := func(first, last string) string { return anyOf(slices.Concat([]string{first}, others, []string{last})) }
	next := neverNext[needed[0].cause]
	if less := c.lesserEach(needed, shapes, fits); len(less) > 0 {
		more := "add nodes that have more"
		if len(needed) == 1 {
			more = cmp.Or(next[1], more)
		}
		return steps(fmt.Sprintf("%s%s, %s which there is room when no other pod runs", set(less), annotate(shapes, less...), with(less)), more)
	}
	if next[0] != "" && len(needed) == 1 {
		return steps(next[0], next[1])
	}
	return steps("ask for less of these: "+named(needed), "add nodes that have it")
}

// annotation is one to set, or to leave out if the value is empty.
type annotation struct {
	key, value string
	// by are the members of a gang to set it for, and who their names; nil: all that have it.
	by  []*question
	who []string
}

// text is the annotation as a step names it: with the members where others get another value.
func (a *annotation) text(all []annotation) string {
	text := a.key
	if a.value != "" {
		text += " to " + a.value
	}
	if slices.ContainsFunc(all, func(o annotation) bool { return o.key == a.key && o.value != a.value }) {
		text += " for " + nodes(a.who)
	}
	return text
}

// with is how the pods do after some changes: with what is set, or without what is left out.
func with(all []annotation) string {
	if slices.ContainsFunc(all, func(a annotation) bool { return a.value != "" }) {
		return "with"
	}
	return "without"
}

// set says what to set and what to leave out.
func set(all []annotation) string {
	var values, keys []string
	for _, a := range all {
		if a.value == "" {
			keys = append(keys, a.text(all))
		} else {
			values = append(values, a.text(all))
		}
	}
	var steps []string
	if len(values) > 0 {
		steps = append(steps, "set "+strings.Join(values, " and "))
	}
	if len(keys) > 0 {
		steps = append(steps, "leave out "+strings.Join(keys, " and "))
	}
	return strings.Join(steps, " and ")
}

// lesserEach returns the annotations that grant all wishes together. There are none if one of the wishes is
// no annotation.
func (c *cluster) lesserEach(needed []wish, shapes []*question, fits func([]wish) bool) (out []annotation) {
	trial := slices.Clone(needed)
	for i, w := range needed {
		asking := shapes
		if w.by != nil {
			asking = w.by
		}
		var values []string
		if w.value != "" { // else it is left out: no value is less for all that have it
			values = c.lesserValues(w.key, needed, asking)
		}
		at := slices.IndexFunc(values, func(value string) bool {
			trial[i] = w.lowered(value)
			return fits(trial)
		})
		a := annotation{key: w.key, by: w.by, who: w.who}
		switch {
		case at >= 0:
			a.value = values[at]
		case w.fix.key != "":
			trial[i], a = w, w.fix
		case w.key != "":
			trial[i] = w
		default:
			return nil
		}
		same := slices.IndexFunc(out, a.equal)
		if same < 0 {
			out = append(out, a)
			continue
		}
		out[same].by, out[same].who = slices.Concat(out[same].by, a.by), slices.Concat(out[same].who, a.who)
	}
	return out
}

// neverNext are the steps where one thing is all that the cluster has too little of: to ask for less, and to
// add to the cluster.
var neverNext = map[Cause][2]string{
	FewCPUs:                            {"ask for less CPU", "add nodes that have more"},
	LowMemory:                          {"ask for less memory", "add nodes that have more"},
	NoDomain:                           {"let the gang be in a greater domain", "add nodes to one"},
	HostPort:                           {"leave the host port out", "add nodes"},
	KeptApart:                          {"leave the anti-affinity out", "add nodes"},
	causeOf(placement.FewSuitableGPUs): {"accept " + suitable, "add nodes that have such GPUs"},
}

// lesserValues are values of an annotation to try, the most demanding first. Some may demand as much as the
// pods do.
func (c *cluster) lesserValues(key string, needed []wish, shapes []*question) []string {
	switch podrequest.CanonicalKey(key) {
	case podrequest.TopologyPolicyKey:
		return []string{"restricted", "best-effort"}
	case podrequest.NUMAAffinityKey:
		return []string{"preferred"}
	case podrequest.MinLinkKey:
		return []string{"NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS"}
	case podrequest.MinBandwidthKey:
		return c.bandwidths(needed, shapes)
	}
	return nil
}

// bandwidths are the ring bandwidths that nodes would give the pods without some wishes, the greatest first.
func (c *cluster) bandwidths(dropped []wish, shapes []*question) (out []string) {
	var all []float64
	for _, q := range shapes {
		less, err := c.question(q.without(dropped))
		if err != nil {
			continue
		}
		for _, n := range c.nodes {
			if set := n.set(less, c.now); set != nil && set.BandwidthGBps > 0 {
				all = append(all, rounded(set.BandwidthGBps))
			}
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	for _, v := range slices.Compact(all) {
		out = append(out, plain(v)+"GB/s")
	}
	return out
}

// rounded is a bandwidth that is no greater, with at most one place.
func rounded(gbps float64) float64 { return math.Floor(10*gbps) / 10 }

// removals are the annotations without which a cause is none.
var removals = map[Cause]string{
	causeOf(placement.UnknownGPUMemory): podrequest.MinGPUMemoryKey,
	causeOf(placement.UnknownGPUModel):  podrequest.GPUModelKey,
}

// change says which change of an annotation would let the pod in now, and how to make it: the most
// demanding of the values that are tried. It is empty if no such change is known.
func (x *podAsk) change(cause Cause) string {
	if cause == causeOf(placement.FewOneModel) {
		mixed := wish{drop: func(p *v1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, podrequest.AllowMixedModelsKey, "true") }}
		return x.ifRoom(mixed, podrequest.AllowMixedModelsKey, "true")
	}
	for _, w := range x.wishesOf() {
		if w.key != "" && removals[cause] == podrequest.CanonicalKey(w.key) {
			return x.ifRoom(w, w.key, "")
		}
		if w.key == "" || w.cause != cause {
			continue
		}
		for _, value := range x.lesserValues(w.key, []wish{w}, []*question{x.q}) {
			if how := x.ifRoom(w.lowered(value), w.key, value); how != "" {
				return how
			}
		}
	}
	return ""
}

// ifRoom says how to change an annotation, if the pod has room then.
func (x *podAsk) ifRoom(changed wish, key, value string) string {
	if x.relaxed(changed) == nil {
		return ""
	}
	return roomNow([]*question{x.q}, annotation{key: key, value: value})
}
