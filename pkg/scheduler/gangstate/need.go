// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// Need has the places that a gang without room would get if all other pods were gone.
type Need struct {
	Where   string                  // the smallest domain with all of its nodes
	Planned []string                // its nodes, by name
	Places  []*Place                // those where members request devices, by name
	Have    map[v1.ResourceName]int // number of nodes with such devices
}

// Place has the needs of members on a node.
type Place struct {
	Node    string
	Device  v1.ResourceName // the first device, by which nodes are counted
	Devices map[v1.ResourceName]bool
	Amounts map[v1.ResourceName]int64 // in the units of candidates.Kept
	Lacks   []v1.ResourceName         // resources of which too little is free
	Way     Way
	InWay   string // a pod of the gang's own namespace, if such pods are in the way
}

// Way is which pods keep members from a node.
type Way uint8

// Nobody means that there is room. Own means that only pods of the gang's own namespace are in the way.
const (
	Nobody Way = iota
	Others
	Own
)

// useless reports whether no places need be kept, and why. A drain that has begun goes on after other
// pods have left: otherwise the next ones would be in the way.
func (n *Need) useless(begun bool) (why string, is bool) {
	if len(n.Places) == 0 {
		return "no places are kept for it, since it asks for no devices", true
	}
	own := ""
	for _, p := range n.Places {
		switch p.Way {
		case Others:
			return "", false
		case Own:
			own = p.InWay
		case Nobody:
		}
	}
	switch {
	case begun:
		return "", false
	case own != "":
		return "no places are kept for it: only pods of its own namespace are in the way, such as " + own, true
	}
	return "", true
}

// lacked returns the resources beside devices that are short now or were before.
func (n *Need) lacked(before []v1.ResourceName) []v1.ResourceName {
	all := slices.Clone(before)
	for _, p := range n.Places {
		if p.Way == Own {
			continue
		}
		for _, name := range p.Lacks {
			if !p.Devices[name] {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Need chooses where to keep places for a gang that has no room: on its own nodes if it still fits there
// once all other pods are gone, else where it fits then, preferring among equal places the one with the
// most free now. Refusals of other plugins on its own nodes are ignored, as pods still there may cause
// them. The error is that of Plan.
func (p *Planner) Need(q *Question, own []string) (*Need, error) {
	if !asksForDevices(q) {
		return &Need{}, nil
	}
	empty := *q
	empty.Empty, empty.Freest, empty.Kept = true, true, nil
	if len(own) > 0 {
		there := empty
		if a, err := p.planOn(&there, own); err == nil {
			return p.needOf(q, a), nil
		}
	}
	a, err := p.Plan(&empty)
	if err != nil {
		return nil, err
	}
	return p.needOf(q, a), nil
}

func asksForDevices(q *Question) bool {
	return slices.ContainsFunc(q.Turn.Pods, func(pod *v1.Pod) bool {
		d, err := q.Demand(pod)
		return err != nil || d.HasGPUs() // Plan returns the error
	})
}

// RefusedThere reports whether the nodes that were chosen for a gang without room have room now, so that
// only other plugins refuse them.
func (p *Planner) RefusedThere(q *Question, own []string) bool {
	now := *q
	if len(q.Turn.Refused) == 0 {
		return false
	}
	now.Kept = nil
	_, err := p.planOn(&now, own)
	return err == nil
}

// planOn plans on some nodes only, ignoring the refusals of other plugins.
func (p *Planner) planOn(q *Question, nodes []string) (*Answer, error) {
	q.Unrefused, q.Closed = true, func(node string) bool { return !slices.Contains(nodes, node) }
	return p.Plan(q)
}

// members is a number of gang members of one shape, planned on a node.
type members struct {
	shape *shape
	count int
}

// needOf returns the needs of the answer of an empty cluster, and which pods are in the way.
func (p *Planner) needOf(q *Question, a *Answer) *Need {
	n, on := &Need{Have: map[v1.ResourceName]int{}}, map[string][]members{}
	for i := range a.Members {
		node, s := a.Members[i].Node, a.shapes[i]
		at := slices.IndexFunc(on[node], func(m members) bool { return m.shape == s })
		if at < 0 {
			at, on[node] = len(on[node]), append(on[node], members{shape: s})
		}
		on[node][at].count++
	}
	n.Planned = slices.Sorted(maps.Keys(on))
	n.Where = n.Planned[0]
	if depth := a.Depth(); depth <= a.tree.Depth() {
		n.Where = a.tree.DomainName(depth, a.Plan.Domains[depth][0])
	}
	for _, name := range n.Planned {
		node, _ := a.tree.Node(name)
		if place := p.newPlace(p.located.infos[node], on[name]); place.Device != "" {
			p.judge(q, place, p.located.infos[node], on[name])
			n.Places = append(n.Places, place)
			n.Have[place.Device] = 0
		}
	}
	for _, info := range p.located.infos {
		for device := range n.Have {
			if info != nil && info.Node() != nil && info.GetAllocatable().GetScalarResources()[device] > 0 {
				n.Have[device]++
			}
		}
	}
	return n
}

// newPlace sums up the requests of members. If it matters which devices they get, all devices of the node
// are needed: it is unknown which ones the other pods would leave.
func (p *Planner) newPlace(info fwk.NodeInfo, on []members) *Place {
	place := sumOf(info.Node().Name, on)
	have := info.GetAllocatable().GetScalarResources()
	for name := range place.Devices {
		if p.matters(info, name, on) {
			place.Amounts[name] = have[name]
		}
	}
	return place
}

// matters reports whether members need more than a number of devices: they have demands on them, or some
// of the node's devices are broken or degraded.
func (p *Planner) matters(info fwk.NodeInfo, name v1.ResourceName, on []members) bool {
	if node := p.supplier.Node(info.Node().Name); node != nil {
		if accel := node.Accel(string(name)); accel != nil && int64((accel.Healthy&^accel.Degraded).Len()) < info.GetAllocatable().GetScalarResources()[name] {
			return true
		}
	}
	return slices.ContainsFunc(on, func(m members) bool {
		d := m.shape.Demand
		return d.LinkSensitive() || d.Picky() || d.NeedsNUMAFit()
	})
}

func sumOf(node string, on []members) *Place {
	p := &Place{Node: node, Devices: map[v1.ResourceName]bool{}, Amounts: map[v1.ResourceName]int64{}}
	for _, m := range on {
		r, count := m.shape.Demand.Request, int64(m.count)
		p.Amounts[v1.ResourceCPU] += count * r.MilliCPU
		p.Amounts[v1.ResourceMemory] += count * r.Memory
		p.Amounts[v1.ResourceEphemeralStorage] += count * r.EphemeralStorage
		for name, each := range r.Scalars {
			p.Amounts[name] += count * each
		}
		for _, device := range r.Resources {
			name := v1.ResourceName(device.Name)
			if p.Devices[name] = true; p.Device == "" {
				p.Device = name
			}
		}
	}
	return p
}

// judge finds which pods are in the way.
func (p *Planner) judge(q *Question, place *Place, info fwk.NodeInfo, on []members) {
	place.Lacks = lacksOf(info, on)
	if len(place.Lacks) == 0 && p.fitOn(q, info, on, nil) {
		return
	}
	place.Way = Others
	key, own := q.Turn.Gang.Key, &Cleared{Info: info.Snapshot(), Gone: sets.New[types.UID]()}
	for _, pi := range info.GetPods() {
		pod := pi.GetPod()
		if of, _ := gangrequest.KeyOf(pod); pod.Namespace == key.Namespace && of != key {
			own.remove(pod)
			place.InWay = fmt.Sprintf("%s on %s", pod.Name, place.Node)
		}
	}
	if place.InWay != "" && len(lacksOf(own.Info, on)) == 0 && p.fitOn(q, own.Info, on, own.Gone) {
		place.Way = Own
	}
}

// lacksOf returns the requested resources of members of which the node has too little free.
func lacksOf(info fwk.NodeInfo, on []members) (names []v1.ResourceName) {
	need := map[v1.ResourceName]int64{}
	for _, m := range on {
		for _, name := range slices.Concat([]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}, slices.Collect(maps.Keys(m.shape.Demand.Scalars))) {
			need[name] += int64(m.count) * candidates.AmountOf(m.shape.Demand.Request, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(need)) {
		if need[name] > 0 && candidates.AmountIn(info.GetAllocatable(), name)-candidates.AmountIn(info.GetRequested(), name) < need[name] {
			names = append(names, name)
		}
	}
	return names
}

// fitOn reports whether a node takes the members of each shape, without the pods of gone.
func (p *Planner) fitOn(q *Question, info fwk.NodeInfo, on []members, gone sets.Set[types.UID]) bool {
	return !slices.ContainsFunc(on, func(m members) bool {
		s := m.shape
		if !s.freePorts(info) {
			return true
		}
		supply := p.after(q, s, info, 0, nil, gone)
		return supply.Members() < m.count
	})
}

// freeFor returns how much of a demand's first device, or CPU, is free on a node.
func freeFor(d *placement.Demand, info fwk.NodeInfo) int64 {
	if !d.HasGPUs() {
		return info.GetAllocatable().GetMilliCPU() - info.GetRequested().GetMilliCPU()
	}
	name := v1.ResourceName(d.Resources[0].Name)
	return info.GetAllocatable().GetScalarResources()[name] - info.GetRequested().GetScalarResources()[name]
}
