// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/release"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// options returns the options of the shipped scheduler profile.
func options() *podrequest.Options {
	return &podrequest.Options{
		Resources: []string{topologyv1alpha1.DefaultResource}, DefaultPolicy: nvtopo.PolicyBestEffort, Supported: podrequest.AllPolicies(),
		HardwareLabels: topologyv1alpha1.DefaultHardwareLabels(),
	}
}

// kind is the pods of one PodSet, which are all alike to every node.
type kind struct {
	podSet string
	count  int
	pod    *v1.Pod // represents all of them
	demand *placement.Demand
	shape  placement.Shape
}

// gang is pods that are placed together or not at all.
type gang struct {
	*gangrequest.Gang
	key   gangrequest.Key
	kinds []*kind
	of    map[types.UID]int // pod -> index in kinds
}

// ask is the pods of a Workload that need a place.
type ask struct {
	workload *kueue.Workload
	gangs    []*gang
	singles  []*kind
	priority int32 // the lowest of its pods'
}

// read returns the ask of a Workload. counts, if not nil, is the number of pods of each PodSet to place;
// otherwise it is the admitted number. An error is one that the scheduler will fail with, too.
func (s *Snapshot) read(w *kueue.Workload, flavors map[string]*kueue.ResourceFlavor, counts map[string]int) (*ask, error) {
	a := &ask{workload: w}
	members := map[gangrequest.Key]*gang{}
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		k, err := s.kindOf(w, ps, flavors[ps.Name])
		if err != nil {
			return nil, fmt.Errorf("podSet %s: %w", ps.Name, err)
		}
		if counts != nil {
			k.count = counts[ps.Name]
		}
		if k.count == 0 {
			continue
		}
		if a.priority = min(a.priority, k.demand.Priority); len(a.gangs)+len(a.singles) == 0 {
			a.priority = k.demand.Priority
		}
		key, member := gangrequest.KeyOf(k.pod)
		switch {
		case !member:
			a.singles = append(a.singles, k)
		case members[key] != nil:
			members[key].kinds = append(members[key].kinds, k)
		default:
			g := &gang{key: key, kinds: []*kind{k}}
			members[key] = g
			a.gangs = append(a.gangs, g)
		}
	}
	for _, g := range a.gangs {
		if err := g.complete(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// kindOf reads a PodSet as its pods will be: with the labels of the flavor's nodes, and with the check's
// own earlier promise.
func (s *Snapshot) kindOf(w *kueue.Workload, ps *kueue.PodSet, flavor *kueue.ResourceFlavor) (*kind, error) {
	pod := &v1.Pod{ObjectMeta: *ps.Template.ObjectMeta.DeepCopy(), Spec: *ps.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = w.Namespace, w.Name+"-"+ps.Name
	pod.UID = types.UID(string(w.UID) + "/" + ps.Name)
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = map[string]string{}
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if flavor != nil {
		maps.Copy(pod.Spec.NodeSelector, flavor.Spec.NodeLabels)
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, flavor.Spec.Tolerations...)
	}
	if c := checkOf(w); c != nil && c.State == kueue.CheckReady {
		for i := range c.PodSetUpdates {
			if u := &c.PodSetUpdates[i]; u.Name == ps.Name {
				maps.Copy(pod.Spec.NodeSelector, u.NodeSelector)
				maps.Copy(pod.Annotations, u.Annotations)
			}
		}
	}
	s.prioritize(pod)
	requestLimits(&pod.Spec)
	opt := options()
	if pod.Spec.SchedulerName != release.Profile { // for pods of other schedulers only numbers are compared
		opt.Resources = nil
	}
	r, err := podrequest.Parse(pod, opt)
	if err != nil {
		return nil, err
	}
	k := &kind{podSet: ps.Name, count: countOf(w, ps), pod: pod, demand: &placement.Demand{Request: r}}
	k.shape, err = placement.NewShape(pod, k.demand)
	return k, err
}

// countOf returns the number of pods of a PodSet that need a place: the admitted ones, or those to be
// admitted, without those that have succeeded. Where Kueue excluded these already at admission, they are
// not subtracted twice.
func countOf(w *kueue.Workload, ps *kueue.PodSet) int {
	toCome := int(ps.Count) - reclaimableOf(w, ps.Name)
	if w.Status.Admission != nil {
		for i := range w.Status.Admission.PodSetAssignments {
			if a := &w.Status.Admission.PodSetAssignments[i]; a.Name == ps.Name && a.Count != nil {
				toCome = min(toCome, int(*a.Count))
			}
		}
	}
	return max(0, toCome)
}

// reclaimableOf returns the number of pods of a PodSet that have succeeded according to Kueue, so that
// they no longer need their quota.
func reclaimableOf(w *kueue.Workload, podSet string) int {
	for _, r := range w.Status.ReclaimablePods {
		if r.Name == podSet {
			return int(r.Count)
		}
	}
	return 0
}

// prioritize sets the priority of a pod's PriorityClass, as the API server does.
func (s *Snapshot) prioritize(pod *v1.Pod) {
	if value, ok := s.classes[pod.Spec.PriorityClassName]; ok && pod.Spec.Priority == nil {
		pod.Spec.Priority = &value
	}
}

// requestLimits sets missing requests to the limits, as the API server does for pods but not for
// templates.
func requestLimits(spec *v1.PodSpec) {
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			for name, q := range r.Limits {
				if _, ok := r.Requests[name]; ok {
					continue
				}
				if r.Requests == nil {
					r.Requests = v1.ResourceList{}
				}
				r.Requests[name] = q
			}
		}
	}
}

// complete reads the gang of its kinds. Of a PodGroup only the pods' own annotations are read.
func (g *gang) complete() error {
	members := 0
	for _, k := range g.kinds {
		// Tenants choose the count, and each member costs memory.
		if members += k.count; k.count > gangrequest.MaxMembers || members > gangrequest.MaxMembers {
			return fmt.Errorf("a gang of more than %d pods", gangrequest.MaxMembers)
		}
	}
	g.of = map[types.UID]int{}
	var all []*v1.Pod
	for number, k := range g.kinds {
		for i := range k.count {
			pod := &v1.Pod{ObjectMeta: k.pod.ObjectMeta, Spec: k.pod.Spec}
			pod.Name, pod.UID = k.pod.Name+"-"+strconv.Itoa(i), k.uid(i)
			pod.Annotations = maps.Clone(pod.Annotations)
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			pod.Annotations[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(i)
			g.of[pod.UID] = number
			all = append(all, pod)
		}
	}
	g.Gang = gangrequest.Read(g.key, nil, all)
	if g.Err != nil && !errors.Is(g.Err, gangrequest.ErrNoGroup) {
		return g.Err
	}
	return nil
}

func (k *kind) uid(i int) types.UID { return types.UID(string(k.pod.UID) + "/" + strconv.Itoa(i)) }

// key is equal for asks that every Snapshot decides alike, except for their topology wait timeout.
func (a *ask) key() string {
	var b []byte
	add := func(k *kind) {
		b = fmt.Appendf(b, "%d %q %s %s ", k.count, k.demand.PromisedModel, ptr.Deref(k.pod.Spec.PreemptionPolicy, ""), k.shape.Class)
	}
	for _, g := range a.gangs {
		b = fmt.Appendf(b, "gang %+v ", g.Wishes)
		for _, k := range g.kinds {
			add(k)
		}
	}
	for _, k := range a.singles {
		b = append(b, "alone "...)
		add(k)
	}
	return string(b)
}

// flavorsOf returns the flavor of each PodSet of a Workload with quota: the flavor of its devices if it
// has some. Pods of a PodSet with several flavors get the labels of all; pools have one.
func (s *Snapshot) flavorsOf(w *kueue.Workload) map[string]*kueue.ResourceFlavor {
	out := map[string]*kueue.ResourceFlavor{}
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		merged := &kueue.ResourceFlavor{}
		for _, name := range slices.Compact(slices.Sorted(maps.Values(a.Flavors))) {
			if f := s.flavors[name]; f != nil {
				merged = merge(merged, f)
			}
		}
		out[a.Name] = merged
	}
	return out
}

func merge(a, b *kueue.ResourceFlavor) *kueue.ResourceFlavor {
	out := &kueue.ResourceFlavor{Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{}}}
	maps.Copy(out.Spec.NodeLabels, a.Spec.NodeLabels)
	maps.Copy(out.Spec.NodeLabels, b.Spec.NodeLabels)
	out.Spec.Tolerations = slices.Concat(a.Spec.Tolerations, b.Spec.Tolerations)
	return out
}

// flavorsFor returns the flavors that a Workload without quota may get, each for all its PodSets.
func (s *Snapshot) flavorsFor(w *kueue.Workload) (out []map[string]*kueue.ResourceFlavor) {
	queue := s.queues[s.queueFor[w.Namespace+"/"+w.Spec.QueueName]]
	if queue == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, group := range queue.Spec.ResourceGroups {
		for _, q := range group.Flavors {
			flavor := s.flavors[q.Name]
			if flavor == nil || seen[q.Name] {
				continue
			}
			seen[q.Name] = true
			all := map[string]*kueue.ResourceFlavor{}
			for i := range w.Spec.PodSets {
				all[w.Spec.PodSets[i].Name] = flavor
			}
			out = append(out, all)
		}
	}
	return out
}
