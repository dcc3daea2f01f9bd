// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestRestlessNode: a node that never stops publishing is read from time to time. A machine writes 100
// times a second for a minute, with a link changed each time and without.
func TestRestlessNode(t *testing.T) {
	tests := map[string]struct {
		kind      string
		change    func(obj *v1alpha1.NodeGPUTopology, i int)
		min, max  int // objects read in the minute
		wantClass int // distinct graphs read, at most
	}{
		"its status flaps": {
			kind: "dgx-h100", min: 200, max: 450, wantClass: 1,
			change: func(obj *v1alpha1.NodeGPUTopology, i int) {
				obj.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: obj.Spec.GPUs[0].ID, Healthy: i%2 == 0}}
			},
		},
		"its links differ each time": {
			kind: "dgx-h100", min: 200, max: 450, wantClass: 90,
			change: func(obj *v1alpha1.NodeGPUTopology, i int) {
				obj.Spec.LinkKinds[0].Bandwidth = resource.MustParse(strconv.Itoa(1_000_000 * (1 + i)))
			},
		},
		"the links of a large machine differ each time": {
			kind: "dgx2", min: 60, max: 450, wantClass: 2,
			change: func(obj *v1alpha1.NodeGPUTopology, i int) {
				obj.Spec.LinkKinds[0].Bandwidth = resource.MustParse(strconv.Itoa(1_000_000 * (1 + i)))
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t)
			take, late := r.handler()
			first, honest := topologyOf(t, "n", tc.kind), topologyOf(t, "honest", "dgx-h100")
			read, classes, last := 0, map[string]bool{}, ""
			for i := range 6000 {
				r.clock.now = r.clock.now.Add(10 * time.Millisecond)
				obj := first.DeepCopy()
				obj.ResourceVersion = strconv.Itoa(i + 1)
				tc.change(obj, i)
				take(obj)
				if i%10 == 0 {
					late()
				}
				if n := r.Node("n"); n.ResourceVersion != last {
					read, last = read+1, n.ResourceVersion
					classes[n.Accels[0].Graph.ClassKey()] = true
				}
				if i%1000 == 0 {
					honest = honest.DeepCopy()
					honest.ResourceVersion = strconv.Itoa(i + 1)
					take(honest)
					if got := r.Node("honest").ResourceVersion; got != honest.ResourceVersion {
						t.Fatalf("the other node's object is held back at step %d", i)
					}
				}
			}
			if read < tc.min || read > tc.max || len(classes) > tc.wantClass {
				t.Errorf("%d objects and %d graphs of 6000 are read, want %d to %d and at most %d", read, len(classes), tc.min, tc.max, tc.wantClass)
			}
			// Once it is quiet, its last object is read.
			for range 20 {
				r.clock.now = r.clock.now.Add(10 * time.Second)
				late()
			}
			if got := r.Node("n").ResourceVersion; got != "6000" || len(r.HeldBack()) != 0 {
				t.Errorf("the last object read is %s of 6000, %d wait", got, len(r.HeldBack()))
			}
			r.clock.now = r.clock.now.Add(time.Hour)
			if r.late(); len(r.limiter.quotas) != 0 {
				t.Errorf("%d quotas of quiet nodes are kept", len(r.limiter.quotas))
			}
		})
	}
}

// TestFaultsWithoutDelay: a fault is read without waiting for the graph. The links of a large machine
// change too often, and then a GPU fails, one vanishes and one is given to a pod.
func TestFaultsWithoutDelay(t *testing.T) {
	r := newTestEnv(t)
	take, late := r.handler()
	obj := topologyOf(t, "n", "dgx2")
	publish := func(change func(*v1alpha1.NodeGPUTopology)) {
		obj = obj.DeepCopy()
		version, err := strconv.Atoi(obj.ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		obj.ResourceVersion = strconv.Itoa(version + 1)
		change(obj)
		take(obj)
	}
	for i := range 10 {
		publish(func(o *v1alpha1.NodeGPUTopology) {
			o.Spec.LinkKinds[0].Bandwidth = resource.MustParse(strconv.Itoa(1_000_000 * (1 + i)))
		})
	}
	first := obj.Spec.GPUs
	publish(func(o *v1alpha1.NodeGPUTopology) {
		o.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: first[3].ID, Reason: "Xid79"}}
		o.Status.Allocations = []v1alpha1.Allocation{{
			PodUID: "p", Container: "main", Resource: v1alpha1.DefaultResource, GPUs: []string{first[5].ID}, State: v1alpha1.StateForeign,
		}}
		withoutGPU(o)
	})
	n := r.Node("n")
	if len(r.HeldBack()) != 1 || n.Accels[0].Graph.Len() != 16 {
		t.Fatalf("%d objects wait, the graph has %d GPUs: this was not a test", len(r.HeldBack()), n.Accels[0].Graph.Len())
	}
	if want := nvtopo.FullMask(15) &^ nvtopo.MaskOf(3); n.Accels[0].Healthy != want {
		t.Errorf("healthy are %b, want %b", n.Accels[0].Healthy, want)
	}
	if recs := n.Records["p"]; len(recs) != 1 {
		t.Errorf("of kubelet's record are known %v", recs)
	}
	r.clock.now = r.clock.now.Add(time.Hour)
	late()
	if n := r.Node("n"); n.Accels[0].Graph.Len() != 15 || len(r.HeldBack()) != 0 {
		t.Errorf("when it is quiet the graph has %d GPUs, want 15; %d objects wait", n.Accels[0].Graph.Len(), len(r.HeldBack()))
	}
}

// TestQueuedFaults: a fault that waited does not wait for the graph. Both quotas are used up: an object
// that had to wait as a whole was then not read until its graph could be.
func TestQueuedFaults(t *testing.T) {
	r := newTestEnv(t)
	take, late := r.handler()
	obj := topologyOf(t, "n", "dgx2")
	for i := range 200 {
		obj = obj.DeepCopy()
		obj.ResourceVersion, obj.Spec.LinkKinds[0].Bandwidth = strconv.Itoa(i+2), resource.MustParse(strconv.Itoa(1_000_000*(1+i)))
		if i == 199 {
			obj.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: obj.Spec.GPUs[3].ID, Reason: "Xid79"}}
		}
		take(obj)
	}
	if r.Node("n").ResourceVersion == obj.ResourceVersion {
		t.Fatal("nothing had to wait: this was not a test")
	}
	for range 20 {
		r.clock.now = r.clock.now.Add(lateInterval)
		late()
	}
	if n := r.Node("n"); n.Accels[0].Healthy.Has(3) || !n.Partial {
		t.Errorf("after 2 s the broken GPU is healthy: %t; read without its graph: %t, want it so", n.Accels[0].Healthy.Has(3), n.Partial)
	}
}

// TestQueuedObjectDeletion: a waiting change goes with its object.
func TestQueuedObjectDeletion(t *testing.T) {
	r := newTestEnv(t)
	take, late := r.handler()
	obj := topologyOf(t, "n", "dgx-h100")
	for i := range 1000 {
		obj = obj.DeepCopy()
		obj.ResourceVersion = strconv.Itoa(i + 1)
		take(obj)
	}
	if len(r.HeldBack()) != 1 {
		t.Fatalf("%d objects wait, want the node's last", len(r.HeldBack()))
	}
	r.Handler(func(Change, error) {}).OnDelete(obj)
	r.clock.now = r.clock.now.Add(time.Hour)
	late()
	if r.Node("n") != nil {
		t.Error("an object that was removed came back")
	}
}

// TestLargeMachineRecreation: a large machine that is made again is read at once: it has used most of its
// share, and there is no graph to use until the next one is due.
func TestLargeMachineRecreation(t *testing.T) {
	r := newTestEnv(t)
	handler := r.Handler(func(Change, error) {})
	obj := topologyOf(t, "n", "dgx2")
	handler.OnAdd(obj, false)
	handler.OnDelete(obj)
	again := obj.DeepCopy()
	again.UID, again.ResourceVersion = "another", "2"
	handler.OnAdd(again, false)
	if n := r.Node("n"); n == nil || n.ResourceVersion != "2" {
		t.Errorf("node %+v, want the graph of the new object", n)
	}
}

// publisherOf publishes the object of a large machine, "n", as the watch delivers it.
type publisherOf struct {
	*testEnv
	t       *testing.T
	handler cache.ResourceEventHandler
	obj     *v1alpha1.NodeGPUTopology // as last published
	version int
	freed   int // how often some pod may fit because of an object that was read
}

func newPublisher(t *testing.T) *publisherOf {
	t.Helper()
	p := &publisherOf{testEnv: newTestEnv(t), t: t, obj: topologyOf(t, "n", "dgx2")}
	p.obj.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n"}}
	p.handler = p.Handler(func(c Change, err error) {
		if err != nil {
			t.Error(err)
		}
		if c.Freed {
			p.freed++
		}
	})
	p.handler.OnAdd(p.obj, true)
	return p
}

// publish writes the object with a change, which comes as an update.
func (p *publisherOf) publish(change func(*v1alpha1.NodeGPUTopology)) {
	next := p.obj.DeepCopy()
	p.version++
	next.ResourceVersion = strconv.Itoa(100 + p.version)
	change(next)
	p.handler.OnUpdate(p.obj, next)
	p.obj = next
}

// recreate deletes the object and makes it again.
func (p *publisherOf) recreate(change func(*v1alpha1.NodeGPUTopology)) {
	p.handler.OnDelete(p.obj)
	p.makeAnew(change)
}

// makeAnew makes the object again without a deletion event, as after a watch was broken. The exporter
// makes it, the agent writes its part, and then the exporter its status.
func (p *publisherOf) makeAnew(change func(*v1alpha1.NodeGPUTopology)) {
	status := p.obj.Status
	p.publish(func(o *v1alpha1.NodeGPUTopology) {
		o.UID, o.Status = types.UID(o.ResourceVersion), v1alpha1.NodeGPUTopologyStatus{}
		change(o)
	})
	p.publish(func(o *v1alpha1.NodeGPUTopology) { o.Status.Allocations = status.Allocations })
	p.publish(func(o *v1alpha1.NodeGPUTopology) {
		o.Status.Summary, o.Status.GPUHealth = status.Summary, status.GPUHealth
	})
}

// wait lets time pass until nothing is held back, and returns how much it took.
func (p *publisherOf) wait() time.Duration {
	p.t.Helper()
	start := p.clock.now
	for len(p.HeldBack()) > 0 {
		if p.clock.now.Sub(start) > time.Hour {
			p.t.Fatalf("%v is held back for an hour", p.HeldBack())
		}
		p.clock.now = p.clock.now.Add(lateInterval)
		for _, node := range p.late() {
			change, err := p.takeLate(node)
			if err != nil {
				p.t.Fatal(err)
			}
			if change.Freed {
				p.freed++
			}
		}
	}
	if n := p.Node("n"); n == nil || n.ResourceVersion != p.obj.ResourceVersion || n.Partial {
		p.t.Fatalf("nothing waits and the node is %+v, want version %s", n, p.obj.ResourceVersion)
	}
	return p.clock.now.Sub(start)
}

func unchanged(*v1alpha1.NodeGPUTopology) {}

// withoutGPU takes the last GPU away.
func withoutGPU(o *v1alpha1.NodeGPUTopology) {
	last := len(o.Spec.GPUs) - 1
	o.Spec.GPUs, o.Spec.NICs, o.Spec.LinkRows = o.Spec.GPUs[:last], nil, o.Spec.LinkRows[:last-1]
	for i, row := range o.Spec.LinkRows {
		o.Spec.LinkRows[i] = row[:strings.LastIndexByte(row, ' ')]
	}
}

// slower gives the links of the first kind a new bandwidth.
func slower(bandwidth int) func(*v1alpha1.NodeGPUTopology) {
	return func(o *v1alpha1.NodeGPUTopology) {
		o.Spec.LinkKinds[0].Bandwidth = resource.MustParse(strconv.Itoa(1_000_000 * bandwidth))
	}
}

// TestKnownGraph: a known graph never waits. Each case left a machine of 16 GPUs without a graph, or with
// a GPU less, for up to four minutes.
func TestKnownGraph(t *testing.T) {
	tests := map[string]func(p *publisherOf){
		"the object is deleted and made anew, again and again": func(p *publisherOf) {
			for range 5 {
				p.recreate(unchanged)
				p.wait()
			}
			p.recreate(unchanged)
		},
		"the same, while the watch is broken": func(p *publisherOf) {
			for range 5 {
				p.makeAnew(unchanged)
			}
		},
		"a GPU is back": func(p *publisherOf) {
			whole := p.obj.Spec.DeepCopy()
			p.publish(withoutGPU)
			p.wait()
			p.publish(func(o *v1alpha1.NodeGPUTopology) { o.Spec = *whole })
		},
		"a link is back, and the object made anew": func(p *publisherOf) {
			whole := p.obj.Spec.DeepCopy()
			p.publish(slower(1))
			p.wait()
			p.recreate(func(o *v1alpha1.NodeGPUTopology) { o.Spec = *whole })
		},
		"another machine of the kind takes the node's place": func(p *publisherOf) {
			p.publish(slower(1))
			p.publish(func(o *v1alpha1.NodeGPUTopology) {
				o.Spec = topologyOf(p.t, "another", "dgx2").Spec
			})
		},
	}
	for name, play := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(t)
			play(p)
			if took := p.wait(); took > 0 {
				t.Errorf("the graph waits for %v", took)
			}
		})
	}
}

// TestNewGraphDelay measures the delay of a machine of 16 GPUs, whose tables are expensive. security.md
// has these numbers.
func TestNewGraphDelay(t *testing.T) {
	tests := map[string]struct {
		play func(p *publisherOf)
		want time.Duration
	}{
		"the first after that of the start": {
			play: func(p *publisherOf) { p.publish(slower(1)) },
			want: time.Minute,
		},
		"the next": {
			play: func(p *publisherOf) {
				p.publish(slower(1))
				p.wait()
				p.publish(slower(2))
			},
			want: 2 * time.Minute,
		},
		"of an object made anew, which is read at once if anything is left": {
			play: func(p *publisherOf) { p.recreate(slower(1)) },
		},
		"of one made anew when nothing is left": {
			play: func(p *publisherOf) {
				p.recreate(slower(1))
				p.recreate(slower(2))
			},
			want: time.Minute,
		},
		"after one made anew that took what was left": {
			play: func(p *publisherOf) {
				p.recreate(slower(1))
				p.clock.now = p.clock.now.Add(time.Minute + time.Second)
				p.recreate(slower(2))
				p.publish(slower(3))
			},
			want: 4 * time.Minute,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(t)
			tc.play(p)
			freed := p.freed
			took := p.wait()
			if took < tc.want-2*time.Second || took > tc.want+time.Second {
				t.Errorf("it waits for %v, want %v", took, tc.want)
			}
			if took > 0 && p.freed != freed+1 {
				t.Errorf("when it was read, pods were said to fit %d times, want once", p.freed-freed)
			}
		})
	}
}

// TestGoneObject: an object that is gone is not used: it was made again while the watch was broken, and
// the new one has to wait. The old one stayed, with its status.
func TestGoneObject(t *testing.T) {
	p := newPublisher(t)
	p.makeAnew(slower(1))
	p.makeAnew(slower(2))
	if len(p.HeldBack()) != 1 {
		t.Fatal("nothing waits: this was not a test")
	}
	if n := p.Node("n"); n != nil {
		t.Errorf("version %s of object %s counts, want none while version %s waits", n.ResourceVersion, n.ObjectUID, p.obj.ResourceVersion)
	}
	p.wait()
}

// TestReleaseDuringDelay: devices that kubelet releases are read while the graph waits. The status of a
// machine whose graph waits is written as often as its agent may.
func TestReleaseDuringDelay(t *testing.T) {
	p := newPublisher(t)
	p.publish(slower(1))
	since := p.clock.now
	for i := range 100 {
		p.clock.now = p.clock.now.Add(600 * time.Millisecond)
		p.publish(func(o *v1alpha1.NodeGPUTopology) {
			o.Status.Allocations = nil
			if i%2 == 0 {
				o.Status.Allocations = []v1alpha1.Allocation{{PodUID: "p", Container: "main", Resource: v1alpha1.DefaultResource, GPUs: []string{o.Spec.GPUs[5].ID}}}
			}
		})
		held := p.HeldBack()["n"]
		if n := p.Node("n"); len(n.Records) != (i+1)%2 || n.ResourceVersion != p.obj.ResourceVersion {
			t.Fatalf("at step %d kubelet's record is %v of version %s, held back is %+v", i, n.Records, n.ResourceVersion, held)
		}
		if held.ResourceVersion != "" && (!held.GraphOnly || !held.Since.Equal(since)) {
			t.Fatalf("at step %d %+v is held back, want its graph only since %v", i, held, since)
		}
	}
}

// TestDelayedReadNotice: a waiting change is reported when it is read. Pods that wait for the node's
// graph are woken then.
func TestDelayedReadNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(clock.RealClock{}, nodelease.NewTable(0), nvtopo.NewRegistry(nvtopo.DefaultWeights()), func() bool { return true })
		told := make(chan Change)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.readLate(ctx, func(change Change, err error) {
			if change.Changed || err != nil {
				told <- change
			}
		})
		h := c.Handler(func(Change, error) {})
		obj := topologyOf(t, "n", "dgx2")
		for i := range 3 { // the third finds nothing left
			h.OnDelete(obj)
			obj = obj.DeepCopy()
			obj.UID, obj.ResourceVersion = types.UID(strconv.Itoa(i)), strconv.Itoa(i+2)
			slower(i + 1)(obj)
			h.OnAdd(obj, false)
		}
		start := time.Now()
		change := <-told
		if took := time.Since(start); change.Node != "n" || !change.Freed || took < 50*time.Second || took > time.Minute+time.Second {
			t.Errorf("after %v is told %+v, want after a minute that pods may fit node n", took, change)
		}
	})
}
