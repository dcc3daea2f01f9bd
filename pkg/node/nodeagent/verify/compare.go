// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// slot identifies one container's devices of one resource.
type slot struct{ container, resource string }

// podView is the part of a pod that the comparison uses.
type podView struct {
	uid             types.UID // the API server's UID; for a static pod, its mirror's
	namespace, name string
	want            *allocation.Allocation // nil without a valid annotation
	// states holds the states that an earlier process published for a pod that is gone, and whose annotation
	// is no longer known.
	states map[slot]string
}

// entry is one recorded allocation, compared with the scheduler's choice.
type entry struct {
	v1alpha1.Allocation
	recorded types.UID // the pod's UID in kubelet's record
	want     []string  // the choice, sorted; nil if the pod has none
	with     string    // if swapped: the container that has the devices chosen for this one
}

// compare returns an entry for each record, with its state against the scheduler's choice. pods maps
// kubelet's UIDs to pods; records of other pods are left out. The result is ordered by pod UID, container
// and resource. The time is linear in the number of records.
func compare(pods map[types.UID]*podView, records []kubelet.Record) []entry {
	var out []entry
	for _, r := range merge(records) {
		p := pods[r.PodUID]
		if p == nil {
			continue
		}
		e := entry{recorded: r.PodUID, Allocation: v1alpha1.Allocation{
			PodUID: p.uid, Namespace: p.namespace, Pod: p.name, Container: r.Container, Resource: r.Resource, GPUs: r.IDs,
		}}
		e.want, e.State = judge(p, &e.Allocation)
		out = append(out, e)
	}
	markSwapped(out)
	slices.SortFunc(out, func(a, b entry) int { return compareKeys(&a.Allocation, &b.Allocation) })
	return out
}

func compareKeys(a, b *v1alpha1.Allocation) int {
	return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Resource, b.Resource))
}

// merge combines records into one for each pod, container and resource, with sorted
// physical devices: "uuid::3" is a share of the device "uuid".
func merge(records []kubelet.Record) []kubelet.Record {
	type key struct {
		uid types.UID
		slot
	}
	at := map[key]int{}
	var out []kubelet.Record
	for _, r := range records {
		k := key{r.PodUID, slot{r.Container, r.Resource}}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, kubelet.Record{PodUID: r.PodUID, Container: r.Container, Resource: r.Resource, IDs: []string{}})
		}
		for _, id := range r.IDs {
			id, _, _ = strings.Cut(id, "::")
			out[i].IDs = append(out[i].IDs, id)
		}
	}
	for i := range out {
		slices.Sort(out[i].IDs)
		out[i].IDs = slices.Compact(out[i].IDs)
	}
	return out
}

// judge returns the state of one container's devices against its own pod's choice only.
func judge(p *podView, a *v1alpha1.Allocation) (want []string, state string) {
	if p.want == nil {
		if s, ok := p.states[slot{a.Container, a.Resource}]; ok {
			return nil, s
		}
		return nil, v1alpha1.StateForeign
	}
	want, equal := p.want.Recorded(a.Container, a.Resource, a.GPUs)
	switch {
	case want == nil:
		return nil, v1alpha1.StateForeign
	case equal:
		return want, v1alpha1.StateConfirmed
	}
	return want, v1alpha1.StateReassigned
}

// markSwapped finds pairs of reassigned entries where each has the other's choice.
func markSwapped(all []entry) {
	key := func(e *entry, ids []string) string { return e.Resource + "\x00" + strings.Join(ids, "\x00") }
	having := map[string][]int{} // resource and devices -> entries that have them
	for i := range all {
		if e := &all[i]; e.State == v1alpha1.StateReassigned {
			k := key(e, e.GPUs)
			having[k] = append(having[k], i)
		}
	}
	for i := range all {
		e := &all[i]
		if e.want == nil || e.State != v1alpha1.StateReassigned {
			continue
		}
		for _, j := range having[key(e, e.want)] {
			if o := &all[j]; i != j && o.State == v1alpha1.StateReassigned && slices.Equal(o.want, e.GPUs) {
				e.State, o.State = v1alpha1.StateSwapped, v1alpha1.StateSwapped
				e.with, o.with = o.label(e.Namespace), e.label(o.Namespace)
				break
			}
		}
	}
}

// label names the container in texts for people of a namespace. The name of a pod in another namespace is
// not revealed.
func (e *entry) label(namespace string) string {
	if namespace != e.Namespace {
		return "a pod of another namespace"
	}
	return "container " + e.Container + " of pod " + e.Namespace + "/" + e.Pod
}
