// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// device is one GPU of one node.
type device struct{ node, uuid string }

// sharers are pods that have the same GPUs.
type sharers struct {
	node string
	uids []types.UID
	gpus []string
}

// groups collects the GPUs that more than one pod has, one entry for each set of pods,
// so the result is not longer than the input.
func groups(holders map[device][]types.UID) []sharers {
	byPods := map[string]*sharers{}
	for d, uids := range holders {
		slices.Sort(uids)
		if uids = slices.Compact(uids); len(uids) < 2 {
			continue
		}
		key := fmt.Sprintf("%s %q", d.node, uids)
		g := byPods[key]
		if g == nil {
			g = &sharers{node: d.node, uids: uids}
			byPods[key] = g
		}
		g.gpus = append(g.gpus, d.uuid)
	}
	var out []sharers
	for _, key := range slices.Sorted(maps.Keys(byPods)) {
		slices.Sort(byPods[key].gpus)
		out = append(out, *byPods[key])
	}
	return out
}

func (s *scene) objects(uids []types.UID, nodeName string) []Object {
	var out []Object
	for _, u := range uids {
		if p := s.live[u]; p != nil {
			out = append(out, podObject(p))
		}
	}
	return append(out, Object{Kind: "Node", Name: nodeName})
}

// checkSharing finds GPUs that the allocations of several live pods name. Pods that are
// being deleted count too, and so do pods of an earlier Node with the same name.
func (s *scene) checkSharing() {
	holders := map[device][]types.UID{}
	for _, p := range s.bound {
		for _, c := range p.alloc.Containers {
			for _, id := range c.GPUs {
				d := device{p.node.name, id}
				holders[d] = append(holders[d], p.UID)
			}
		}
	}
	for _, g := range groups(holders) {
		v := Violation{
			Invariant: SharedByAnnotation, Objects: s.objects(g.uids, g.node), Field: allocationField,
			Message: fmt.Sprintf("%d live pods have %s of node %s", len(g.uids), strings.Join(g.gpus, ", "), g.node),
		}
		if s.beingCorrected(&g) {
			v.Message += "; kubelet's record gives it to one of them, and the annotations are being corrected"
			s.pend(v)
		} else {
			s.violate(v)
		}
	}
}

// beingCorrected reports whether kubelet's record gives the pods different GPUs, and
// one of the annotations was corrected already. If two pods got each other's GPUs, they
// share them for a moment after the first correction.
func (s *scene) beingCorrected(g *sharers) bool {
	n := s.nodes[g.node]
	if !n.enforced {
		return false
	}
	corrected := false
	having := map[string]int{} // UUID -> pods that have it on record
	for _, uid := range g.uids {
		records := n.records[uid]
		if len(records) == 0 {
			return false
		}
		corrected = corrected || rewritten(s.live[uid])
		for _, r := range records {
			for _, id := range r.GPUs {
				having[id]++
			}
		}
	}
	return corrected && !slices.ContainsFunc(g.gpus, func(id string) bool { return having[id] > 1 })
}

// checkRecordSharing finds GPUs that kubelet recorded for several live pods. If the
// device plugin offers more devices than there are GPUs, it shares them on purpose.
func (s *scene) checkRecordSharing() {
	holders, unjudged := map[device][]types.UID{}, map[device][]types.UID{}
	for _, n := range s.nodes {
		for uid, records := range n.records {
			if p := s.live[uid]; p == nil || p.Spec.NodeName != n.name {
				continue
			}
			for _, r := range records {
				shares, known := n.replicates(r.Resource)
				if shares {
					continue
				}
				to := holders
				if !known {
					to = unjudged
				}
				for _, id := range r.GPUs {
					d := device{n.name, id}
					to[d] = append(to[d], uid)
				}
			}
		}
	}
	for _, g := range groups(holders) {
		s.violate(s.recordShared(&g))
	}
	for _, g := range groups(unjudged) {
		v := s.recordShared(&g)
		v.Invariant, v.Message = Unverified, v.Message+"; it is not known now whether its device plugin shares them on purpose"
		s.note(v)
	}
}

func (s *scene) recordShared(g *sharers) Violation {
	return Violation{
		Invariant: SharedByRecord, Objects: append([]Object{topologyObject(s.nodes[g.node].topology)}, s.objects(g.uids, g.node)...), Field: "status.allocations",
		Message: fmt.Sprintf("kubelet recorded %s of node %s for %d live pods", strings.Join(g.gpus, ", "), g.node, len(g.uids)),
	}
}

// replicates reports whether the node's device plugin offers every GPU several times,
// and whether that is known. Allocatable has no unhealthy devices, and is zero while
// the plugin is away. Kubelet also removes the capacity when the plugin is away for
// five minutes, or kubelet itself restarted. A plugin that started after a GPU fell off
// the bus does not offer that GPU, but the graph still has it. So the number proves
// that GPUs are not shared only if it is less than twice the number of healthy GPUs.
func (n *node) replicates(resource string) (replicates, known bool) {
	accel := n.accels[resource]
	if accel == nil {
		return false, false
	}
	status := &n.object.Status
	capacity, allocatable := status.Capacity[v1.ResourceName(resource)], status.Allocatable[v1.ResourceName(resource)]
	offered := max(capacity.Value(), allocatable.Value())
	if offered > int64(accel.graph.Len()) {
		return true, true
	}
	return false, offered > 0 && offered < 2*int64(accel.healthy.Len())
}

// checkRecord compares the allocation with kubelet's record, if an agent publishes one.
func (s *scene) checkRecord(p *pod) {
	records := p.node.records[p.UID]
	if !p.node.enforced || len(records) == 0 {
		return
	}
	s.Checked.Records++
	differs := func(container, format string, args ...any) {
		s.pend(Violation{
			Invariant: RecordDiffers, Objects: []Object{podObject(p.Pod), topologyObject(p.node.topology)},
			Field: fmt.Sprintf("%s.containers[%s].gpus", allocationField, container), Message: fmt.Sprintf(format, args...),
		})
	}
	for i := range records {
		r := &records[i]
		at := slices.IndexFunc(p.alloc.Containers, func(c allocated) bool { return c.Name == r.Container && c.Resource == r.Resource })
		if at < 0 {
			if p.asks[r.Resource] > 0 {
				differs(r.Container, "kubelet recorded %s, but nothing was chosen for the container", strings.Join(r.GPUs, ", "))
			}
			continue
		}
		c := &p.alloc.Containers[at]
		if want, got := sorted(c.GPUs), sorted(r.GPUs); !slices.Equal(want, got) && !handedOn(p, c, got) {
			differs(c.Name, "kubelet recorded %s, but %s is chosen", strings.Join(got, ", "), strings.Join(want, ", "))
		}
	}
}

// handedOn reports whether an init container has the right number of the pod's own
// GPUs: kubelet passes these on in random order, so which of them it has means nothing.
func handedOn(p *pod, c *allocated, got []string) bool {
	own := p.alloc.GPUs(c.Resource)
	return c.Init && len(got) == len(c.GPUs) && !slices.ContainsFunc(got, func(id string) bool { return !slices.Contains(own, id) })
}

func sorted(ids []string) []string { return slices.Sorted(slices.Values(ids)) }
