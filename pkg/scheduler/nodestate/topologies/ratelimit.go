// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// Each node may publish a burst that is read at once, and a rate in the long run. Objects beyond that
// wait; only the last object of a node is kept.
const (
	// An object costs objectCost, some 0.1 ms, and as much again for each 28 links (those of 8 GPUs) and for
	// each 64 entries of kubelet's record.
	objectCost = 28 * 16
	linkCost   = objectCost / 28
	recordCost = objectCost / 64
	// objectRate, per second, and objectBurst are for objects. An object of 8 GPUs costs 2, so its agent may
	// report five times a second for ever.
	objectRate, objectBurst = 10 * objectCost, 200 * objectCost
	// graphRate, per second, and graphBurst are for graphs whose tables have to be built: sixty at once and
	// one in three seconds for up to 8 GPUs. Above that tables are expensive: one at once, the next a minute
	// later and then one in two minutes. Noise on 16 GPUs takes some 50 ms, and a hundred nodes of it must
	// not take the seconds in which a scheduler starts. A graph whose tables exist, as after a link is back
	// or an object was made again, only costs its object.
	graphRate, graphBurst  = 1.0 / 3, 60
	smallGraph, largeGraph = 1, 40
	// forgetAfter is the time between removals of unused quotas.
	forgetAfter = time.Minute
)

// limiter prevents one node from delaying all others by publishing without end: it decides which objects
// are read now, and holds back the last of each node. Cache.mu guards it.
type limiter struct {
	clock   clock.PassiveClock
	quotas  map[string]*quota // by node
	waiting map[string]late   // by node: objects to read later
	forgot  time.Time         // when quotas were last removed
}

// late is an object that waits, or whose graph waits.
type late struct {
	obj      *v1alpha1.NodeGPUTopology
	newGraph bool      // only its graph waits
	partial  bool      // its status was read with the earlier graph
	since    time.Time // when an object of the node began to wait
}

// quota is the amount that a node may publish. One read may overdraw it. Reading a new graph may not
// overdraw it if an older one can be used meanwhile.
type quota struct{ objects, graphs *rate.Limiter }

func newQuota() *quota {
	return &quota{objects: rate.NewLimiter(objectRate, objectBurst), graphs: rate.NewLimiter(graphRate, graphBurst)}
}

// isWhole reports whether the quota is unused.
func (q *quota) isWhole(now time.Time) bool {
	return q.objects.TokensAt(now) == objectBurst && q.graphs.TokensAt(now) == graphBurst
}

func newLimiter(c clock.PassiveClock) *limiter {
	return &limiter{clock: c, quotas: map[string]*quota{}, waiting: map[string]late{}}
}

// admit returns the part of an object to read now, given last, the spec that was read of it before: all
// of it, its status with the last graph, or nil. The rest waits in the place of the earlier waiting
// object. isNew reports whether its graph has tables to be built; it reads the graph, and is called only
// if necessary. The reader of the object then calls built if tables were built.
func (l *limiter) admit(obj *v1alpha1.NodeGPUTopology, last *v1alpha1.NodeGPUTopologySpec, isNew func() bool) *v1alpha1.NodeGPUTopology {
	now, q := l.clock.Now(), l.quotas[obj.Name]
	if q == nil {
		q = newQuota()
		l.quotas[obj.Name] = q
	}
	graphs := q.graphs.TokensAt(now)
	mayBuild := graphs > 0 && (last == nil || graphs >= float64(graphCost(&obj.Spec)))
	w := l.inPlace(obj, now)
	switch {
	case w.newGraph && !mayBuild: // before graphs are compared, as this runs ten times a second
		return nil
	case q.objects.TokensAt(now) <= 0:
		l.waiting[obj.Name] = w
		return nil
	case !mayBuild && (last == nil || !sameGraph(&obj.Spec, last)) && l.hasNewGraph(q, obj, isNew):
		l.waiting[obj.Name] = late{obj: obj, newGraph: true, partial: last != nil, since: w.since}
		if last == nil {
			return nil
		}
		q.objects.ReserveN(now, costOf(obj))
		return withGraph(obj, last)
	}
	q.objects.ReserveN(now, costOf(obj))
	delete(l.waiting, obj.Name)
	return obj
}

// inPlace returns the object as it would wait, replacing the waiting one.
func (l *limiter) inPlace(obj *v1alpha1.NodeGPUTopology, now time.Time) late {
	before, ok := l.waiting[obj.Name]
	switch {
	case !ok:
		return late{obj: obj, since: now}
	case before.obj == obj:
		return before
	}
	return late{obj: obj, since: before.since}
}

// hasNewGraph reports whether an object's graph has tables to be built. The check costs as much as an
// object, except for the graph that waits already.
func (l *limiter) hasNewGraph(q *quota, obj *v1alpha1.NodeGPUTopology, isNew func() bool) bool {
	if w := l.waiting[obj.Name]; w.newGraph && sameGraph(&obj.Spec, &w.obj.Spec) {
		return true
	}
	q.objects.ReserveN(l.clock.Now(), costOf(obj))
	return isNew()
}

// built charges a node for the tables built for its graph.
func (l *limiter) built(obj *v1alpha1.NodeGPUTopology) {
	if q := l.quotas[obj.Name]; q != nil {
		q.graphs.ReserveN(l.clock.Now(), graphCost(&obj.Spec))
	}
}

// withGraph returns an object with the graph of an earlier version: new health faults and kubelet's
// record must not wait for its links. A GPU that it no longer has is unhealthy.
func withGraph(obj *v1alpha1.NodeGPUTopology, last *v1alpha1.NodeGPUTopologySpec) *v1alpha1.NodeGPUTopology {
	out := &v1alpha1.NodeGPUTopology{TypeMeta: obj.TypeMeta, ObjectMeta: obj.ObjectMeta, Spec: *last, Status: obj.Status}
	out.Status.GPUHealth = slices.Clone(obj.Status.GPUHealth)
	for i := range last.GPUs {
		id := last.GPUs[i].ID
		if slices.ContainsFunc(obj.Spec.GPUs, func(g v1alpha1.GPU) bool { return g.ID == id }) {
			continue
		}
		out.Status.GPUHealth = slices.DeleteFunc(out.Status.GPUHealth, func(h v1alpha1.GPUHealth) bool { return h.ID == id })
		out.Status.GPUHealth = append(out.Status.GPUHealth, v1alpha1.GPUHealth{ID: id, Reason: "GPU is lost: it is not in the graph that waits to be read"})
	}
	return out
}

// sameGraph reports whether two specs have the same devices with the same links.
func sameGraph(a, b *v1alpha1.NodeGPUTopologySpec) bool {
	return len(a.GPUs) == len(b.GPUs) && len(a.NUMANodes) == len(b.NUMANodes) && slices.Equal(a.LinkRows, b.LinkRows) &&
		equality.Semantic.DeepEqual(a.LinkKinds, b.LinkKinds) && equality.Semantic.DeepEqual(a.GPUs, b.GPUs) &&
		equality.Semantic.DeepEqual(a.NUMANodes, b.NUMANodes)
}

func graphCost(spec *v1alpha1.NodeGPUTopologySpec) int {
	if len(spec.GPUs) <= 8 {
		return smallGraph
	}
	return largeGraph
}

// costOf returns the cost of reading an object. A limiter takes no more than its burst at once; the
// largest object that the definition allows costs less.
func costOf(obj *v1alpha1.NodeGPUTopology) int {
	gpus := len(obj.Spec.GPUs)
	return min(objectBurst, objectCost+linkCost*gpus*(gpus-1)/2+recordCost*len(obj.Status.Allocations))
}

// forget drops the waiting object if it is the one that is gone.
func (l *limiter) forget(name string, object types.UID) {
	if w := l.waiting[name]; w.obj != nil && w.obj.UID == object {
		delete(l.waiting, name)
	}
}

// due returns the nodes with a waiting object; admit decides again whether it may be read now.
func (l *limiter) due() []string {
	now := l.clock.Now()
	if now.Sub(l.forgot) > forgetAfter {
		l.forgot = now
		maps.DeleteFunc(l.quotas, func(node string, q *quota) bool { return l.waiting[node].obj == nil && q.isWhole(now) })
	}
	return slices.Collect(maps.Keys(l.waiting))
}
