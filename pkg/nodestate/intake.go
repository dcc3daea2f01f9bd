// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// Each node may publish so much that is read at once, and so much a second in the
// long run. What is beyond waits, and only the last object of a node does.
const (
	// readRate and readBurst are of objects; the unit is some 0.1 ms. An object of 8
	// GPUs costs 2, so that its agent may report five times a second for ever.
	readRate, readBurst = 10, 200
	// graphRate and graphBurst are of graphs that differ from the one before: sixty at once
	// and one in three seconds up to 8 GPUs; where tables are dear one at once, the next a
	// minute later and then one in two. Noise on 16 GPUs takes some 50 ms, and a hundred
	// nodes of it must not take the seconds in which a scheduler starts.
	graphRate, graphBurst = 1.0 / 3, 60
	smallGraph            = 1
	largeGraph            = 40
	// intakeInterval is how often objects that had to wait are looked at.
	intakeInterval = 100 * time.Millisecond
	// forgetShares is how often shares that are whole again are forgotten.
	forgetShares = time.Minute
)

// intake keeps one node from taking the time of all others by publishing without
// end: it says which objects are read now, and holds back the last of each node.
type intake struct {
	clock clock.PassiveClock
	// serial is held from the question whether an object is read until it is, and while
	// one goes, so that none comes back that was removed.
	serial sync.Mutex

	mu      sync.Mutex
	shares  map[string]*quota // node -> what is left to it; guarded by mu
	waiting map[string]late   // node -> what to read later; guarded by mu
	forgot  time.Time         // when shares were forgotten last; guarded by mu
}

// late is an object that waits, or whose graph does.
type late struct {
	obj     *v1alpha1.NodeGPUTopology
	partial bool // its status was read with the graph before it
}

// quota is what a node may publish.
type quota struct{ objects, graphs bucket }

// bucket is filled at a rate up to a burst. What is taken may overdraw it once, except a
// graph where there is one to go on with.
type bucket struct {
	left float64
	at   time.Time
}

func (b *bucket) fill(now time.Time, rate, burst float64) {
	if b.at.IsZero() {
		b.left = burst
	}
	b.left = min(burst, b.left+rate*max(0, now.Sub(b.at).Seconds()))
	b.at = now
}

func newIntake(c clock.PassiveClock) *intake {
	return &intake{clock: c, shares: map[string]*quota{}, waiting: map[string]late{}}
}

// admit returns what of an object is to be read now, where the last spec that was
// read of it is known: all of it, its status with the last graph, or nothing (nil).
// What is left waits in the place of the one before it.
func (in *intake) admit(obj *v1alpha1.NodeGPUTopology, last *v1alpha1.NodeGPUTopologySpec) *v1alpha1.NodeGPUTopology {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := in.clock.Now()
	b := in.shares[obj.Name]
	if b == nil {
		b = &quota{}
		in.shares[obj.Name] = b
	}
	b.objects.fill(now, readRate, readBurst)
	b.graphs.fill(now, graphRate, graphBurst)
	w := in.waiting[obj.Name]
	if w.obj == obj && w.partial && b.graphs.left < graphCost(&obj.Spec) {
		return nil // before the graphs are compared, which is asked ten times a second
	}
	if b.objects.left <= 0 {
		in.waiting[obj.Name] = late{obj: obj, partial: w.obj == obj && w.partial}
		return nil
	}
	if last == nil || !sameGraph(&obj.Spec, last) {
		if b.graphs.left <= 0 || last != nil && b.graphs.left < graphCost(&obj.Spec) {
			in.waiting[obj.Name] = late{obj: obj, partial: last != nil}
			if last == nil {
				return nil
			}
			b.objects.left -= objectCost(obj)
			return withGraph(obj, last)
		}
		b.graphs.left -= graphCost(&obj.Spec)
	}
	b.objects.left -= objectCost(obj)
	delete(in.waiting, obj.Name)
	return obj
}

// withGraph returns an object with the graph of an earlier version: what broke since,
// and what kubelet gave to whom, must not wait for its links. A GPU that it has no more
// is unhealthy.
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
	return len(a.GPUs) == len(b.GPUs) && len(a.Links) == len(b.Links) && len(a.NUMANodes) == len(b.NUMANodes) &&
		slices.Equal(a.LinkRows, b.LinkRows) && equality.Semantic.DeepEqual(a.LinkKinds, b.LinkKinds) &&
		equality.Semantic.DeepEqual(a.GPUs, b.GPUs) && equality.Semantic.DeepEqual(a.Links, b.Links) &&
		equality.Semantic.DeepEqual(a.NUMANodes, b.NUMANodes)
}

func graphCost(spec *v1alpha1.NodeGPUTopologySpec) float64 {
	if len(spec.GPUs) <= 8 {
		return smallGraph
	}
	return largeGraph
}

func objectCost(obj *v1alpha1.NodeGPUTopology) float64 {
	return 1 + float64(obj.Spec.Pairs())/28 + float64(len(obj.Status.Allocations))/64
}

// forget drops what waits of an object that is gone.
func (in *intake) forget(name string, object types.UID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if w := in.waiting[name]; w.obj != nil && w.obj.UID == object {
		delete(in.waiting, name)
	}
}

// due returns the objects that wait; whether one may be read now admit says again.
func (in *intake) due() []*v1alpha1.NodeGPUTopology {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := in.clock.Now()
	if now.Sub(in.forgot) > forgetShares {
		in.forgot = now
		for name, b := range in.shares {
			b.objects.fill(now, readRate, readBurst)
			b.graphs.fill(now, graphRate, graphBurst)
			if b.objects.left == readBurst && b.graphs.left == graphBurst && in.waiting[name].obj == nil {
				delete(in.shares, name)
			}
		}
	}
	out := make([]*v1alpha1.NodeGPUTopology, 0, len(in.waiting))
	for _, w := range in.waiting {
		out = append(out, w.obj)
	}
	return out
}

// held returns how many nodes have an object that waits.
func (in *intake) held() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.waiting)
}

// takeLate reads what had to wait, in time, until ctx ends.
func (s *State) takeLate(ctx context.Context) {
	ticker := s.clock.NewTicker(intakeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		s.intake.serial.Lock()
		for _, t := range s.intake.due() {
			s.take(ctx, t)
		}
		s.intake.serial.Unlock()
	}
}
