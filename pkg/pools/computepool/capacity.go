// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topology "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/quota"
)

// maxOnNode bounds how many devices a node, or a pod, is believed to have: 64 GPUs, of which 64
// containers each take turns, several times over. Nodes write what they like.
const maxOnNode = 1 << 16

// Devices are what a pool's nodes have of one resource.
type Devices struct {
	Resource   v1.ResourceName
	Discovered int64 // on all of the pool's nodes
	Healthy    int64 // of those, on nodes that take pods
	Held       int64 // by live pods, whatever the state of their nodes
	Foreign    int64 // of those, by pods outside of tenants' namespaces
	ByTenant   map[string]int64

	// The states below are exclusive, and Discovered together.
	Allocated   int64 // held, on nodes that are ready
	Maintenance int64 // free, on nodes that take no pods
	Failed      int64 // unhealthy, or on nodes that are not ready
	Free        int64 // the rest
}

// Capacity is what a pool has.
type Capacity struct {
	Devices     []Devices // in the order of the pool's resources
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
	resources := Resources(pool)
	c := &Capacity{
		Nodes: int64(len(m.Nodes)), Taken: m.Taken,
		total: int64(pool.Spec.Capacity.Total), reserved: int64(pool.Spec.Capacity.Reserved),
	}
	for _, r := range resources {
		c.Devices = append(c.Devices, Devices{Resource: r, ByTenant: map[string]int64{}})
	}
	holders := c.addPods(m, resources, pods, tenants)
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
func (c *Capacity) addPods(m *Members, resources []v1.ResourceName, pods []*v1.Pod, tenants map[string]string) map[string][]holder {
	holders := map[string][]holder{}
	for _, p := range pods {
		if !m.Has(p.Spec.NodeName) || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		held := podDevices(&p.Spec, resources)
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
			if n := held[c.Devices[i].Resource]; n > 0 {
				c.Devices[i].ByTenant[tenant] += n
			}
		}
	}
	return holders
}

// addNode counts the devices of a node, each in one state.
func (d *Devices) addNode(node *v1.Node, state nodeState, t *topology.NodeGPUTopology, holders []holder) {
	all, given := onNode(node.Status.Capacity, d.Resource), onNode(node.Status.Allocatable, d.Resource)
	all = max(all, given)
	sick := unhealthy(t, node, d.Resource)
	var held, heldSick, foreign int64
	for _, h := range holders {
		n := h.held[d.Resource]
		held += n
		heldSick += sickOf(h.pod, node.Name, d.Resource, sick)
		if h.foreign {
			foreign += n
		}
	}
	d.Discovered += all
	d.Held += min(held, all)
	d.Foreign += min(foreign, all)
	if state == nodeFailed {
		d.Failed += all
		return
	}
	// A device plugin takes unhealthy devices out of what is allocatable, and the exporter says
	// which they are. Where both speak they speak of the same ones.
	failed := min(all, max(all-given, int64(len(sick))))
	allocated := min(max(held-heldSick, 0), all-failed)
	free := all - failed - allocated
	d.Failed += failed
	d.Allocated += allocated
	if state == nodeInMaintenance {
		d.Maintenance += free
		return
	}
	d.Healthy += allocated + free
	d.Free += free
}

func onNode(list v1.ResourceList, r v1.ResourceName) int64 {
	q := list[r]
	return min(max(q.Value(), 0), maxOnNode)
}

// unhealthy are the ids of a node's devices of a resource that must not be used.
func unhealthy(t *topology.NodeGPUTopology, node *v1.Node, resource v1.ResourceName) map[string]bool {
	if t == nil || t.Spec.NodeUID != node.UID {
		return nil
	}
	var out map[string]bool
	for i := range t.Status.GPUHealth {
		h := &t.Status.GPUHealth[i]
		if h.Healthy || !slices.ContainsFunc(t.Spec.GPUs, func(g topology.GPU) bool {
			return g.ID == h.ID && counted(g.Resource) == resource
		}) {
			continue
		}
		if out == nil {
			out = map[string]bool{}
		}
		out[h.ID] = true
	}
	return out
}

// counted is the resource of a device; one that names none is of the default.
func counted(of string) v1.ResourceName { return v1.ResourceName(cmp.Or(of, topology.DefaultResource)) }

// sickOf is how many of the unhealthy devices a pod has, by its own allocation.
func sickOf(pod *v1.Pod, node string, resource v1.ResourceName, sick map[string]bool) int64 {
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

// Available is what is neither reserved nor held.
func (c *Capacity) Available() int64 { return max(0, c.Total()-c.Reserved()-c.Held()) }

// States counts each device in one state. Free devices beyond the total are kept back like the
// reserve.
func (c *Capacity) States() v1alpha1.DeviceStates {
	free := c.sum(func(d *Devices) int64 { return d.Free })
	keptBack := min(free, c.Reserved()+c.Discovered()-c.Total())
	return v1alpha1.DeviceStates{
		Available:   int32(free - keptBack),
		Reserved:    int32(keptBack),
		Allocated:   int32(c.sum(func(d *Devices) int64 { return d.Allocated })),
		Maintenance: int32(c.sum(func(d *Devices) int64 { return d.Maintenance })),
		Failed:      int32(c.sum(func(d *Devices) int64 { return d.Failed })),
	}
}

// ForTenants is what tenants can share of each resource.
func (c *Capacity) ForTenants() Amounts {
	out := Amounts{}
	for i := range c.Devices {
		d := &c.Devices[i]
		out[d.Resource] = quota.Capacity{
			Total: c.part(c.total, i), Healthy: d.Healthy, Reserved: c.part(c.reserved, i), Foreign: d.Foreign,
		}.ForTenants()
	}
	return out
}

// part is how much of an amount of devices is one of resource i. Owners write one number for all
// of a pool's resources, and Kueue keeps a quota for each: the number is divided as the devices
// are, and rounded down, so that the parts are never more than the whole, nor a guarantee's part
// more than that of its limit. With one resource the part is the whole. While there is no device,
// all is the first resource's.
func (c *Capacity) part(n int64, i int) int64 {
	all := c.Discovered()
	switch {
	case all > 0:
		return n * c.Devices[i].Discovered / all
	case i == 0:
		return n
	default:
		return 0
	}
}
