// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topology "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/pools/quota"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// maxOnNode bounds how many of a resource a node, or a pod, is believed to have: 64 GPUs, of which
// 64 containers each take turns, several times over. Nodes write what they like.
const maxOnNode = 1 << 16

// Devices are what a pool's nodes have of one unit. Numbers are devices, unless they say otherwise.
type Devices struct {
	Unit       units.Unit
	Discovered int64 // on all of the pool's nodes
	Held       int64 // by live pods, whatever the state of their nodes
	Foreign    int64 // of those, by pods outside of tenants' namespaces

	// The states are exclusive, and Discovered together.
	Allocated   int64 // held, on nodes that are ready
	Maintenance int64 // free, on nodes that take no pods
	Failed      int64 // unhealthy, or on nodes that are not ready
	Free        int64 // the rest

	// In units:
	Healthy        int64 // on nodes that take pods
	HealthyForeign int64 // of those, held by pods outside of tenants' namespaces
	ByTenant       map[string]int64
}

// Capacity is what a pool has.
type Capacity struct {
	Devices     []Devices
	Nodes       int64
	ReadyNodes  int64             // that take pods
	ForeignPods []string          // namespace/name, sorted
	Taken       map[string]string // nodes that are another pool's, with its name
	total       int64             // as the pool's owner says
	reserved    int64
}

// CapacityOf counts the devices of a pool.
//
// topologies are by node; one of another Node than its name's is left out. pods are all of the
// cluster, and tenants says whose a namespace is; a namespace that is absent is no tenant's.
func CapacityOf(pool *v1alpha1.ComputePool, m *Members, topologies map[string]*topology.NodeGPUTopology, pods []*v1.Pod, tenants map[string]string) *Capacity {
	all := Units(pool)
	c := &Capacity{
		Nodes: int64(len(m.Nodes)), Taken: m.Taken,
		total: int64(pool.Spec.Capacity.Total), reserved: int64(pool.Spec.Capacity.Reserved),
	}
	for _, u := range all {
		c.Devices = append(c.Devices, Devices{Unit: u, ByTenant: map[string]int64{}})
	}
	holders := c.addPods(m, all, pods, tenants)
	for _, n := range m.Nodes {
		state := stateOf(n)
		if state == nodeTakesPods {
			c.ReadyNodes++
		}
		for i := range c.Devices {
			c.Devices[i].addNode(n, state, topologies[n.Name], holders[n.Name])
		}
	}
	slices.Sort(c.ForeignPods)
	return c
}

// holder is a live pod with devices.
type holder struct {
	pod     *v1.Pod
	held    Amounts
	foreign bool
}

// addPods counts what tenants hold, and returns who holds devices by node.
func (c *Capacity) addPods(m *Members, all []units.Unit, pods []*v1.Pod, tenants map[string]string) map[string][]holder {
	holders := map[string][]holder{}
	for _, p := range pods {
		if !m.Has(p.Spec.NodeName) || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		held := heldBy(&p.Spec, all)
		if len(held) == 0 {
			continue
		}
		tenant, isTenant := tenants[p.Namespace]
		holders[p.Spec.NodeName] = append(holders[p.Spec.NodeName], holder{pod: p, held: held, foreign: !isTenant})
		if !isTenant {
			c.ForeignPods = append(c.ForeignPods, p.Namespace+"/"+p.Name)
			continue
		}
		for i := range c.Devices {
			if n := held[c.Devices[i].resource()]; n > 0 {
				c.Devices[i].ByTenant[tenant] += n
			}
		}
	}
	return holders
}

func (d *Devices) resource() resourceName { return resourceName(d.Unit.Resource) }

// onNode is what a node has of a unit.
type onNode struct {
	devices int64 // that it has
	units   int64 // that they are
	given   int64 // units that may be given out
	sick    map[string]bool
}

// addNode counts the devices of a node, each in one state.
func (d *Devices) addNode(node *v1.Node, state nodeState, t *topology.NodeGPUTopology, holders []holder) {
	n := d.readNode(node, t)
	var held, heldSick, foreign int64
	for _, h := range holders {
		held += h.held[d.resource()]
		heldSick += sickOf(h.pod, node.Name, d.resource(), n.sick)
		if h.foreign {
			foreign += h.held[d.resource()]
		}
	}
	d.Discovered += n.devices
	d.Held += n.asDevices(held)
	d.Foreign += n.asDevices(foreign)
	if state == nodeFailed {
		d.Failed += n.devices
		return
	}
	// A device plugin takes unhealthy devices out of what is allocatable, and the exporter says
	// which they are. Where both speak they speak of the same ones.
	failed := min(n.devices, max(n.asDevices(n.units-n.given), int64(len(n.sick))))
	allocated := min(max(n.asDevices(held)-heldSick, 0), n.devices-failed)
	free := n.devices - failed - allocated
	d.Failed += failed
	d.Allocated += allocated
	if state == nodeInMaintenance || n.units == 0 {
		d.Maintenance += free
		return
	}
	d.Healthy += min(n.given, n.units-failed*n.units/n.devices)
	d.HealthyForeign += min(foreign, n.units)
	d.Free += free
}

// readNode reads what a node has. Of parts of devices it says how many there are, and not of how
// many devices: that says its graph, or else the parts that a device usually has.
func (d *Devices) readNode(node *v1.Node, t *topology.NodeGPUTopology) onNode {
	n := onNode{units: countIn(node.Status.Capacity, d.Unit), given: countIn(node.Status.Allocatable, d.Unit)}
	n.units = max(n.units, n.given)
	n.devices = (n.units + d.Unit.PerDevice - 1) / d.Unit.PerDevice
	if t == nil || t.Spec.NodeUID != node.UID {
		return n
	}
	resource := d.resource()
	if d.Unit.PerDevice > 1 {
		resource = topology.DefaultResource
	}
	healthy := map[string]bool{}
	for i := range t.Status.GPUHealth {
		healthy[t.Status.GPUHealth[i].ID] = t.Status.GPUHealth[i].Healthy
	}
	n.sick = map[string]bool{}
	var inGraph int64
	for i := range t.Spec.GPUs {
		g := &t.Spec.GPUs[i]
		if counted(g.Resource) != resource {
			continue
		}
		inGraph++
		if ok, told := healthy[g.ID]; told && !ok {
			n.sick[g.ID] = true
		}
	}
	if d.Unit.PerDevice > 1 && inGraph > 0 {
		n.devices = inGraph
	}
	return n
}

// asDevices is how many of a node's devices an amount is, rounded up: a device of which a part is
// held is held.
func (n *onNode) asDevices(amount int64) int64 {
	if n.units == 0 {
		return 0
	}
	return (min(max(amount, 0), n.units)*n.devices + n.units - 1) / n.units
}

// counted is the resource of a device; one that names none is of the default.
func counted(of string) resourceName { return resourceName(cmp.Or(of, topology.DefaultResource)) }

// sickOf is how many of the unhealthy devices a pod has, by its own allocation.
func sickOf(pod *v1.Pod, node string, resource resourceName, sick map[string]bool) int64 {
	if len(sick) == 0 {
		return 0
	}
	a, err := allocation.Of(pod, node)
	if err != nil {
		return 0 // nobody knows which devices it has
	}
	var n int64
	for _, id := range a.GPUs(string(resource)) {
		if sick[id] {
			n++
		}
	}
	return n
}

func (c *Capacity) sum(of func(*Devices) int64) int64 {
	var n int64
	for i := range c.Devices {
		n += of(&c.Devices[i])
	}
	return n
}

// Discovered is how many devices the pool's nodes have.
func (c *Capacity) Discovered() int64 { return c.sum(func(d *Devices) int64 { return d.Discovered }) }

// Held is how many of them live pods hold.
func (c *Capacity) Held() int64 { return c.sum(func(d *Devices) int64 { return d.Held }) }

// Foreign is how many pods outside of tenants' namespaces hold.
func (c *Capacity) Foreign() int64 { return c.sum(func(d *Devices) int64 { return d.Foreign }) }

// Total is how many devices count: what the owner says, or what there is, if that is less.
func (c *Capacity) Total() int64 { return min(c.total, c.Discovered()) }

// Reserved is how many of them no job gets.
func (c *Capacity) Reserved() int64 { return min(c.reserved, c.Total()) }

// free is how many nobody holds, healthy and on nodes that take pods.
func (c *Capacity) free() int64 { return c.sum(func(d *Devices) int64 { return d.Free }) }

// allocated is how many are held on nodes that are ready.
func (c *Capacity) allocated() int64 { return c.sum(func(d *Devices) int64 { return d.Allocated }) }

// Available is how many devices jobs could get now: those that are free on nodes that take pods, or
// what is left of the total if that is less, without the reserve. Whatever shows it takes it from
// here: the states, the status, and with it the metric, the printed columns and the web view.
func (c *Capacity) Available() int64 {
	return max(0, min(c.free(), c.Total()-c.Held())-c.Reserved())
}

// Utilization is how many percent of the devices that can be used are held. What failed, or is in
// maintenance and free, cannot be; the reserve can.
func (c *Capacity) Utilization() int64 {
	usable := min(c.Total(), c.allocated()+c.free())
	if usable == 0 {
		return 0
	}
	return c.allocated() * 100 / usable
}

// States counts each device in one state. Of the free ones those that are not available are kept
// back: the reserve, and what is beyond the total.
func (c *Capacity) States() v1alpha1.DeviceStates {
	return v1alpha1.DeviceStates{
		Available:   bounded(c.Available()),
		Reserved:    bounded(c.free() - c.Available()),
		Allocated:   bounded(c.allocated()),
		Maintenance: bounded(c.sum(func(d *Devices) int64 { return d.Maintenance })),
		Failed:      bounded(c.sum(func(d *Devices) int64 { return d.Failed })),
	}
}

// ForTenants is what tenants can share, in units.
func (c *Capacity) ForTenants() Amounts {
	out := Amounts{}
	for i := range c.Devices {
		d := &c.Devices[i]
		out[d.resource()] = quota.Capacity{
			Total: c.part(c.total, i), Healthy: d.Healthy, Reserved: c.reservedPart(i), Foreign: d.HealthyForeign,
		}.ForTenants()
	}
	return out
}

// inDevices is how many devices amounts of units are, rounded up.
func (c *Capacity) inDevices(a Amounts) int64 {
	return c.sum(func(d *Devices) int64 { return (a[d.resource()] + d.Unit.PerDevice - 1) / d.Unit.PerDevice })
}

// part is how much of a number of devices is of unit i, in units. Owners write one number for all of
// a pool's resources, and Kueue keeps a quota for each: the number is divided as the devices are, and
// rounded down, so that the parts are never more than the whole, nor a guarantee's part more than
// that of its limit. With one resource the part is the whole. While there is no device, all is the
// first resource's.
func (c *Capacity) part(n int64, i int) int64 {
	d := &c.Devices[i]
	switch all := c.Discovered(); {
	case all > 0:
		return n * d.Discovered / all * d.Unit.PerDevice
	case i == 0:
		return n * d.Unit.PerDevice
	default:
		return 0
	}
}

// reservedPart is how much of the reserve is of unit i. What part rounds down would be no reserve at
// all where devices are few or of many kinds, so that what is left goes to the largest remainders.
func (c *Capacity) reservedPart(i int) int64 {
	all := c.Discovered()
	if all == 0 {
		return c.part(c.reserved, i)
	}
	remainder := func(j int) int64 { return c.reserved * c.Devices[j].Discovered % all }
	left, before := c.reserved, int64(0) // devices that rounding leaves; resources that get one of them before i
	for j := range c.Devices {
		left -= c.reserved * c.Devices[j].Discovered / all
		if r := remainder(j); r > remainder(i) || r == remainder(i) && j < i {
			before++
		}
	}
	if before < left {
		return c.part(c.reserved, i) + c.Devices[i].Unit.PerDevice
	}
	return c.part(c.reserved, i)
}
