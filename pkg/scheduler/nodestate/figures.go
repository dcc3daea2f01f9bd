// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// reduceBytes is the size of the all-reduce whose time is estimated: 1 GB, as for gangs.
const reduceBytes = 1e9

// figures has the numbers of GPUs, links and pods that figureCollector exports as metrics. Nothing is
// decided from them.
type figures struct {
	gpus   map[string]*gpuFigures // by model
	groups map[groupKey]*groupFigures
	pods   []podFigures

	counters groupCounters
}

// groupCounters are the counters by resource. They keep packing tables, which take long to build, between
// scrapes.
type groupCounters map[string]*placement.GroupCounter

func (c groupCounters) of(resource string) *placement.GroupCounter {
	if c[resource] == nil {
		c[resource] = placement.NewGroupCounter(resource, nvtopo.Class{})
	}
	return c[resource]
}

// gpuFigures has numbers of GPUs by state; each GPU is in one of them.
type gpuFigures struct {
	used     int // by pods
	free     int // with a free partner as fast as any on the machine
	stranded int // free without such a partner
	unusable int // not used and not available: unhealthy, or of a node that is closed or has no valid graph
}

type groupKey struct {
	model string
	gpus  int
	class string // of the best ring of so many GPUs
}

// groupFigures has numbers of disjoint linked groups, and of the free GPUs that they could be made of.
type groupFigures struct{ free, capacity, freeGPUs int }

// possible returns how many groups the free GPUs could form if they were spread best.
func (g *groupFigures) possible(gpus int) int { return min(g.capacity, g.freeGPUs/gpus) }

// podFigures has the numbers of a pod with two GPUs or more.
type podFigures struct {
	namespace, name, node string
	numa, leastNUMA       int     // NUMA nodes that its GPUs are on, and the fewest possible for this number of GPUs
	reduce, leastReduce   float64 // seconds of an all-reduce of reduceBytes, and the least possible for this number of GPUs; 0 if unknown
}

// figureReader computes figures.
type figureReader struct {
	cache *NodeCache
	lists *FirstLists
}

// read computes the figures from the informers' stores. It takes some microseconds for each pod of a node
// with GPUs, and is meant for a scrape.
func (fr *figureReader) read(counters groupCounters) *figures {
	f := &figures{gpus: map[string]*gpuFigures{}, groups: map[groupKey]*groupFigures{}, counters: counters}
	if fr.cache.listers.stores.nodes == nil || !fr.lists.Synced() {
		return f
	}
	nodes, err := fr.cache.listers.stores.nodes.List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Listing nodes failed")
		return f
	}
	for _, node := range nodes {
		x := fr.cache.cells.get(node.Name)
		if x == nil {
			continue
		}
		n := x.entry.Node()
		if n == nil || n.NodeUID != node.UID {
			continue
		}
		open := fr.cache.topologies.CheckGraph(x.entry, n, node.UID) == placement.Fits && placement.Closed(node) == ""
		f.add(fr.cache.podDevices, fr.cache.inputFromStores(x, n), open)
	}
	f.boundModels()
	return f
}

// add adds a node; open reports whether pods may be placed there.
func (f *figures) add(pods *PodDevices, in *usage.Input, open bool) {
	u := usage.Compute(in)
	for i := range in.Node.Accels {
		f.addAccel(in, u, i, open)
	}
	for j := range in.Pods.Len() {
		f.addPod(pods, in.Node, in.Pods.Pod(j))
	}
}

// addPod adds a pod under the first resource that it has devices of.
func (f *figures) addPod(pods *PodDevices, n *usage.Node, pod *v1.Pod) {
	for _, accel := range n.Accels {
		if set := pods.devicesOf(pod, n, accel); set != 0 {
			if set.Len() > 1 {
				f.pods = append(f.pods, podFiguresOf(pod, accel, set))
			}
			return
		}
	}
}

func (f *figures) addAccel(in *usage.Input, u *usage.Usage, i int, open bool) {
	accel := in.Node.Accels[i]
	model := accel.Graph.Model()
	g := f.gpus[model]
	if g == nil {
		g = &gpuFigures{}
		f.gpus[model] = g
	}
	used := u.Used[i].Len() + u.Counted[i]
	g.used += used
	if !open {
		g.unusable += max(0, accel.Graph.Len()-used)
		return
	}
	free := max(0, u.FreeAt(i).Len()-u.Counted[i])
	g.unusable += max(0, accel.Graph.Len()-used-free)
	paired := free // of a machine without a second GPU
	counter := f.counters.of(accel.Resource)
	for _, k := range placement.GroupSizes() {
		class, ok := counter.BestClass(accel.Tables, k)
		if !ok {
			continue
		}
		linked := counter.Count(u, i, k, in.Now, placement.BesideInput(*in)).Linked
		if k == 2 {
			paired = min(free, 2*linked)
		}
		key := groupKey{model, k, class.String()}
		if f.groups[key] == nil {
			f.groups[key] = &groupFigures{}
		}
		f.groups[key].free += linked
		f.groups[key].capacity += counter.Capacity(in.Node, i, k, in.Now).Linked
		f.groups[key].freeGPUs += placement.Intact(u, i)
	}
	g.free += paired
	g.stranded += free - paired
}

func podFiguresOf(pod *v1.Pod, accel *usage.Accel, set nvtopo.Mask) podFigures {
	t := accel.Tables
	p := podFigures{
		namespace: pod.Namespace, name: pod.Name, node: pod.Spec.NodeName, numa: t.NUMACount(set), leastNUMA: t.MinNUMA(set.Len()),
	}
	if ring, latency := t.Ring(set), t.Latency(set); ring > 0 {
		p.reduce = nvtopo.CostModel{Bandwidth: ring, Latency: latency}.AllReduce(nvtopo.AlgorithmRing, set.Len(), reduceBytes)
		p.leastReduce = nvtopo.CostModel{Bandwidth: t.Best(set.Len()), Latency: latency}.AllReduce(nvtopo.AlgorithmRing, set.Len(), reduceBytes)
	}
	return p
}
