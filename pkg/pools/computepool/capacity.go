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

// maxOnNode is the upper bound on the amount of one resource read from a node or a pod, since nodes may
// report any number: 64 GPUs with 64 time-sliced containers each, several times over.
const maxOnNode = 1 << 16

// Devices is the number of devices of one unit on a pool's nodes, by state. Numbers are devices unless
// stated otherwise.
type Devices struct {
	Unit       units.Unit
	Discovered int64 // on all of the pool's nodes
	Held       int64 // held by live pods, whatever the state of their nodes
	Foreign    int64 // of those, held by pods outside of tenants' namespaces

	// The states below are exclusive; their sum is Discovered.
	Allocated   int64 // held, on ready nodes
	Maintenance int64 // free, on nodes that take no pods
	Failed      int64 // unhealthy, or on nodes that are not ready
	Free        int64 // the rest

	// In units:
	Healthy        int64 // on nodes that take pods
	HealthyForeign int64 // of those, held by pods outside of tenants' namespaces
	ByTenant       map[string]int64
}

// Capacity is the inventory of a pool: its devices, nodes and the pods that hold devices.
type Capacity struct {
	Devices     []Devices
	Nodes       int64
	ReadyNodes  int64             // nodes that are ready and take pods
	ForeignPods []string          // namespace/name, sorted
	Taken       map[string]string // nodes that the selector picks but another pool has -> its name
	total       int64             // spec.capacity.total
	reserved    int64
}

// CapacityOf counts the devices of a pool.
//
// topologies are by node name; one whose NodeUID is not the Node's UID is ignored. pods are all pods of
// the cluster. tenants maps each tenant's namespaces to the tenant; pods of other namespaces are
// foreign.
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

// holder is a live pod that holds devices.
type holder struct {
	pod     *v1.Pod
	held    Amounts
	foreign bool
}

// addPods counts the devices of each tenant's pods, and returns the pods that hold devices, by node.
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

// onNode is the amount of one unit on a node.
type onNode struct {
	devices int64 // whole devices
	units   int64 // the same devices in units
	given   int64 // allocatable units
	sick    map[string]bool
}

// addNode adds the devices of a node to the counts, each in one state.
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
	// A device plugin removes unhealthy devices from the allocatable ones, and the exporter reports
	// which they are. Where both report devices, they are the same ones.
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

// readNode counts a node's devices. A device plugin of device parts publishes only the number of parts,
// so the number of devices is taken from the node's NodeGPUTopology, or else computed with the usual
// number of parts of a device.
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

// asDevices converts units of the node to devices, rounded up: a device with one part held is held.
func (n *onNode) asDevices(amount int64) int64 {
	if n.units == 0 {
		return 0
	}
	return (min(max(amount, 0), n.units)*n.devices + n.units - 1) / n.units
}

// counted returns the resource of a device in a NodeGPUTopology, the default resource if it names none.
func counted(of string) resourceName { return resourceName(cmp.Or(of, topology.DefaultResource)) }

// sickOf counts the unhealthy devices in a pod's recorded allocation.
func sickOf(pod *v1.Pod, node string, resource resourceName, sick map[string]bool) int64 {
	if len(sick) == 0 {
		return 0
	}
	a, err := allocation.Of(pod, node)
	if err != nil {
		return 0 // without a readable allocation its devices are unknown
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

// Discovered is the number of devices on the pool's nodes.
func (c *Capacity) Discovered() int64 { return c.sum(func(d *Devices) int64 { return d.Discovered }) }

// Held is the number of devices that live pods hold.
func (c *Capacity) Held() int64 { return c.sum(func(d *Devices) int64 { return d.Held }) }

// Foreign is the number of devices that pods outside of tenants' namespaces hold.
func (c *Capacity) Foreign() int64 { return c.sum(func(d *Devices) int64 { return d.Foreign }) }

// Total is the number of devices that the pool gives out: spec.capacity.total, or Discovered if that is
// less.
func (c *Capacity) Total() int64 { return min(c.total, c.Discovered()) }

// Reserved is the number of devices kept back from jobs.
func (c *Capacity) Reserved() int64 { return min(c.reserved, c.Total()) }

// free is the number of healthy devices on nodes that take pods and that no pod holds.
func (c *Capacity) free() int64 { return c.sum(func(d *Devices) int64 { return d.Free }) }

// allocated is the number of held devices on ready nodes.
func (c *Capacity) allocated() int64 { return c.sum(func(d *Devices) int64 { return d.Allocated }) }

// Available is the number of devices that jobs could get now: the free ones, or the total minus the held
// ones if that is less, minus the reserve. All displays use this number: the states, the status, and
// with it the metric, the printed columns and the web view.
func (c *Capacity) Available() int64 {
	return max(0, min(c.free(), c.Total()-c.Held())-c.Reserved())
}

// Utilization is the percentage of usable devices that are held. Failed devices, and free ones in
// maintenance, are not usable; the reserve is.
func (c *Capacity) Utilization() int64 {
	usable := min(c.Total(), c.allocated()+c.free())
	if usable == 0 {
		return 0
	}
	return c.allocated() * 100 / usable
}

// States counts each device in one state. Free devices that are not available are counted as reserved:
// the reserve itself and the devices beyond the total.
func (c *Capacity) States() v1alpha1.DeviceStates {
	return v1alpha1.DeviceStates{
		Available:   bounded(c.Available()),
		Reserved:    bounded(c.free() - c.Available()),
		Allocated:   bounded(c.allocated()),
		Maintenance: bounded(c.sum(func(d *Devices) int64 { return d.Maintenance })),
		Failed:      bounded(c.sum(func(d *Devices) int64 { return d.Failed })),
	}
}

// ForTenants is the amount of each resource that tenants can share, in units.
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

// inDevices converts amounts of units to devices, each rounded up, and returns their sum.
func (c *Capacity) inDevices(a Amounts) int64 {
	return c.sum(func(d *Devices) int64 { return (a[d.resource()] + d.Unit.PerDevice - 1) / d.Unit.PerDevice })
}

// part is the share of n devices that belongs to unit i, in units. A spec has one number for all of a
// pool's resources, while Kueue keeps a quota for each: the number is divided in proportion to the
// discovered devices and rounded down, so that the parts never exceed the whole, nor a guarantee's part
// that of its limit. With one resource the part is the whole. While the pool has no device, the first
// resource gets all of it.
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

// reservedPart is the share of the reserve that belongs to unit i, in units. Rounding down as part does
// could leave no reserve at all where devices are few or of many kinds, so the remaining devices go to
// the largest remainders.
func (c *Capacity) reservedPart(i int) int64 {
	all := c.Discovered()
	if all == 0 {
		return c.part(c.reserved, i)
	}
	remainder := func(j int) int64 { return c.reserved * c.Devices[j].Discovered % all }
	left, before := c.reserved, int64(0) // devices lost by rounding; resources that get one of them before i
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
