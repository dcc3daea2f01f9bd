// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// TestForeignGPUs: the GPUs of another node may not be published. Node "liar" publishes two GPUs of
// node "honest".
func TestForeignGPUs(t *testing.T) {
	const all = 0xff
	honest := func(t *testing.T) *v1alpha1.NodeGPUTopology {
		t.Helper()
		obj := topologyOf(t, "honest", "dgx-h100")
		obj.CreationTimestamp = metav1.Unix(2000, 0)
		return obj
	}
	liar := func(t *testing.T) *v1alpha1.NodeGPUTopology {
		t.Helper()
		obj, victim := topologyOf(t, "liar", "dgx-h100"), honest(t)
		obj.CreationTimestamp = metav1.Unix(1000, 0) // the older object
		obj.Spec.GPUs[2].ID, obj.Spec.GPUs[5].ID = victim.Spec.GPUs[2].ID, victim.Spec.GPUs[3].ID
		return obj
	}
	given := func(r *testEnv, node string) int {
		if n := r.Node(node); n != nil {
			return int(n.Accel(testResource).Healthy)
		}
		return 0
	}
	tests := map[string]struct {
		play                 func(t *testing.T, r *testEnv) error // of the lie
		wantHonest, wantLiar int
		wantErr              string
		wantFreed            int
		wantFault            bool // on the liar's object, for an event
	}{
		"stay with the node that had them": {
			play: func(t *testing.T, r *testEnv) error {
				t.Helper()
				r.listed = true
				_, _ = r.Apply(honest(t))
				_, err := r.Apply(liar(t))
				return err
			},
			wantHonest: all, wantLiar: all &^ 0b100100, wantErr: "(and 1 others) is published by node honest already and is not given out on node liar", wantFault: true,
		},
		"are given out where they are once the first node no longer has them": {
			play: func(t *testing.T, r *testEnv) error {
				t.Helper()
				r.listed = true
				_, _ = r.Apply(honest(t))
				_, err := r.Apply(liar(t))
				moved := honest(t)
				moved.ResourceVersion = "2"
				moved.Spec.GPUs[2].ID, moved.Spec.GPUs[3].ID = "GPU-00000000-0000-0000-0000-000000000002", "GPU-00000000-0000-0000-0000-000000000003"
				_, _ = r.Apply(moved)
				return err
			},
			wantHonest: all, wantLiar: all, wantErr: "node honest",
		},
		"are given out once the first object is gone": {
			play: func(t *testing.T, r *testEnv) error {
				t.Helper()
				r.listed = true
				_, _ = r.Apply(honest(t))
				_, err := r.Apply(liar(t))
				if r.Remove("honest", honest(t).UID).Freed {
					r.freed++
				}
				return err
			},
			wantLiar: all, wantErr: "node honest", wantFreed: 1,
		},
		"belong to the older object at a start, however the list is sorted": {
			play: func(t *testing.T, r *testEnv) error {
				t.Helper()
				older := honest(t)
				older.CreationTimestamp = metav1.Unix(500, 0)
				_, first := r.Apply(liar(t))
				_, err := r.Apply(older)
				if first != nil {
					t.Errorf("nobody had them, but: %v", first)
				}
				return err
			},
			wantHonest: all, wantLiar: all &^ 0b100100, wantFault: true,
		},
		"go on being the first node's while it publishes": {
			play: func(t *testing.T, r *testEnv) error {
				t.Helper()
				r.listed = true
				_, _ = r.Apply(honest(t))
				_, err := r.Apply(liar(t))
				for i := range 5 {
					again := []*v1alpha1.NodeGPUTopology{honest(t), liar(t)}[i%2]
					again.ResourceVersion = string(rune('2' + i))
					if _, err := r.Apply(again); err != nil {
						t.Errorf("the same mistake is reported again: %v", err)
					}
				}
				return err
			},
			wantHonest: all, wantLiar: all &^ 0b100100, wantErr: "node honest", wantFault: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t)
			err := tc.play(t, r)
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
			if h, l := given(r, "honest"), given(r, "liar"); h != tc.wantHonest || l != tc.wantLiar {
				t.Errorf("honest gives out %b and liar %b, want %b and %b", h, l, tc.wantHonest, tc.wantLiar)
			}
			if r.freed != tc.wantFreed {
				t.Errorf("pods were woken %d times, want %d", r.freed, tc.wantFreed)
			}
			f := r.Entry("liar").fault.Load()
			if tc.wantFault != (f != nil) || f != nil && (f.object != "topology-liar" || !strings.Contains(f.text, "node honest already")) {
				t.Errorf("what is said of the liar's object is %+v, want anything: %t", f, tc.wantFault)
			}
			if f := r.Entry("honest").Fault(); f != "" {
				t.Errorf("of the honest one is said: %s", f)
			}
			for _, node := range []string{"honest", "liar"} {
				r.renew(node, time.Minute)
				if e := r.Entry(node); e.Node() != nil && r.CheckGraph(e, e.Node(), e.Node().NodeUID) != placement.Fits {
					t.Errorf("the graph of %s does not count: %v", node, r.CheckGraph(e, e.Node(), e.Node().NodeUID))
				}
				if n := r.Node(node); n != nil && int(n.Idle.Free(testResource)) != given(r, node) {
					t.Errorf("an empty %s has %b free, but gives out %b", node, n.Idle.Free(testResource), given(r, node))
				}
			}
		})
	}
}

// TestNumberedDevices: devices that are only numbered are no contest. Ascend910-0 is on every node.
func TestNumberedDevices(t *testing.T) {
	r := newTestEnv(t)
	for _, name := range []string{"a", "b"} {
		obj := topologyOf(t, name, "a100-pcie-4-bridged")
		for i := range obj.Spec.GPUs {
			obj.Spec.GPUs[i].ID = "Ascend910-" + string(rune('0'+i))
		}
		if _, err := r.Apply(obj); err != nil {
			t.Errorf("node %s: %v", name, err)
		}
		if got := r.Node(name).Accel(testResource).Healthy.Len(); got != 4 {
			t.Errorf("node %s gives out %d of 4", name, got)
		}
	}
	if len(r.owners.nodes) != 0 {
		t.Errorf("ids that are not unique are kept: %v", r.owners.nodes)
	}
}

// TestContestEnd: the end of a contest ends no other fault: an agent's text may read like a contest.
func TestContestEnd(t *testing.T) {
	r := newTestEnv(t)
	r.listed = true
	honest, liar := topologyOf(t, "honest", "dgx-h100"), topologyOf(t, "liar", "dgx-h100")
	liar.Spec.GPUs[2].ID = honest.Spec.GPUs[2].ID
	liar.Status.Allocations = []v1alpha1.Allocation{{PodUID: "p", CPUs: "0 is published by node honest"}}
	_, _ = r.Apply(honest)
	_, _ = r.Apply(liar)
	fault := func() string {
		if f := r.Entry("liar").fault.Load(); f != nil {
			return f.text
		}
		return ""
	}
	for _, want := range []string{"status.allocations[0].cpus", "spec.gpus"} {
		if !strings.Contains(fault(), want) {
			t.Errorf("before the other object went, what is said is %q, want %s", fault(), want)
		}
	}
	r.Remove("honest", honest.UID)
	if got := fault(); !strings.Contains(got, "status.allocations[0].cpus") || strings.Contains(got, "spec.gpus") {
		t.Errorf("after it went, what is said is %q, want status.allocations[0].cpus alone", got)
	}
}
