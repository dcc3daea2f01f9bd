// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestANodeThatNeverStopsPublishingIsReadNowAndThen plays 100 writes a second for a
// minute, by a machine that changes a link each time and by one that does not.
func TestANodeThatNeverStopsPublishingIsReadNowAndThen(t *testing.T) {
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
				obj.Spec.Links[0].Bandwidth = resource.MustParse(strconv.Itoa(1000 + i))
			},
		},
		"the links of a large machine differ each time": {
			kind: "dgx2", min: 60, max: 450, wantClass: 2,
			change: func(obj *v1alpha1.NodeGPUTopology, i int) {
				obj.Spec.Links[0].Bandwidth = resource.MustParse(strconv.Itoa(1_000_000 * (1 + i)))
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
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
			if got := r.Node("n").ResourceVersion; got != "6000" || r.HeldBack() != 0 {
				t.Errorf("the last object read is %s of 6000, %d wait", got, r.HeldBack())
			}
			r.clock.now = r.clock.now.Add(time.Hour)
			if r.late(); len(r.limiter.quotas) != 0 {
				t.Errorf("%d quotas of quiet nodes are kept", len(r.limiter.quotas))
			}
		})
	}
}

// TestWhatBreaksDoesNotWaitForTheGraph has the links of a large machine change too
// often, and then a GPU fail, one vanish and one be given to a pod.
func TestWhatBreaksDoesNotWaitForTheGraph(t *testing.T) {
	r := newRig(t)
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
			o.Spec.Links[0].Bandwidth = resource.MustParse(strconv.Itoa(1000 + i))
		})
	}
	first := obj.Spec.GPUs
	publish(func(o *v1alpha1.NodeGPUTopology) {
		o.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: first[3].ID, Reason: "Xid79"}}
		o.Status.Allocations = []v1alpha1.Allocation{{
			PodUID: "p", Container: "main", Resource: v1alpha1.DefaultResource, GPUs: []string{first[5].ID}, State: v1alpha1.StateForeign,
		}}
		last := int32(len(o.Spec.GPUs) - 1)
		o.Spec.GPUs, o.Spec.NICs = o.Spec.GPUs[:last], nil
		o.Spec.Links = slices.DeleteFunc(o.Spec.Links, func(l v1alpha1.Link) bool { return l.A == last || l.B == last })
	})
	n := r.Node("n")
	if r.HeldBack() != 1 || n.Accels[0].Graph.Len() != 16 {
		t.Fatalf("%d objects wait, the graph has %d GPUs: this was not a test", r.HeldBack(), n.Accels[0].Graph.Len())
	}
	if want := nvtopo.FullMask(15) &^ nvtopo.MaskOf(3); n.Accels[0].Healthy != want {
		t.Errorf("healthy are %b, want %b", n.Accels[0].Healthy, want)
	}
	if recs := n.Records["p"]; len(recs) != 1 {
		t.Errorf("of kubelet's record are known %v", recs)
	}
	r.clock.now = r.clock.now.Add(time.Hour)
	late()
	if n := r.Node("n"); n.Accels[0].Graph.Len() != 15 || r.HeldBack() != 0 {
		t.Errorf("when it is quiet the graph has %d GPUs, want 15; %d objects wait", n.Accels[0].Graph.Len(), r.HeldBack())
	}
}

// TestWhatWaitedForItsTurnDoesNotWaitForTheGraph has both quotas run empty: what had to
// wait as a whole was then not read until its graph could be.
func TestWhatWaitedForItsTurnDoesNotWaitForTheGraph(t *testing.T) {
	r := newRig(t)
	take, late := r.handler()
	obj := topologyOf(t, "n", "dgx2")
	for i := range 200 {
		obj = obj.DeepCopy()
		obj.ResourceVersion, obj.Spec.Links[0].Bandwidth = strconv.Itoa(i+2), resource.MustParse(strconv.Itoa(1000+i))
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

func TestWhatWaitsGoesWithItsObject(t *testing.T) {
	r := newRig(t)
	take, late := r.handler()
	obj := topologyOf(t, "n", "dgx-h100")
	for i := range 1000 {
		obj = obj.DeepCopy()
		obj.ResourceVersion = strconv.Itoa(i + 1)
		take(obj)
	}
	if r.HeldBack() != 1 {
		t.Fatalf("%d objects wait, want the node's last", r.HeldBack())
	}
	r.Handler(func(Change, error) {}).OnDelete(obj)
	r.clock.now = r.clock.now.Add(time.Hour)
	late()
	if r.Node("n") != nil {
		t.Error("an object that was removed came back")
	}
}

// TestALargeMachineThatIsMadeAnewIsReadAtOnce: it has used most of its share, and there is
// no graph to go on with until the next one is due.
func TestALargeMachineThatIsMadeAnewIsReadAtOnce(t *testing.T) {
	r := newRig(t)
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
