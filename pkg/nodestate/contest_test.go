// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// TestTheGPUsOfAnotherNode: node "liar" publishes two GPUs of node "honest".
func TestTheGPUsOfAnotherNode(t *testing.T) {
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
	given := func(s *State, node string) int {
		if n := s.Node(node); n != nil {
			return int(n.Accel(testResource).Healthy)
		}
		return 0
	}
	tests := map[string]struct {
		play                 func(t *testing.T, s *State) error // of the lie
		wantHonest, wantLiar int
		wantErr              string
		wantFreed            int
		wantFault            bool // on the liar's object, for an event
	}{
		"stay with the node that had them": {
			play: func(t *testing.T, s *State) error {
				t.Helper()
				s.synced.Store(true)
				_, _ = s.Apply(honest(t))
				_, err := s.Apply(liar(t))
				return err
			},
			wantHonest: all, wantLiar: all &^ 0b100100, wantErr: "(and 1 others) is published by node honest already and is not given out on node liar", wantFault: true,
		},
		"are given out where they are once the first node no longer has them": {
			play: func(t *testing.T, s *State) error {
				t.Helper()
				s.synced.Store(true)
				_, _ = s.Apply(honest(t))
				_, err := s.Apply(liar(t))
				moved := honest(t)
				moved.ResourceVersion = "2"
				moved.Spec.GPUs[2].ID, moved.Spec.GPUs[3].ID = "GPU-00000000-0000-0000-0000-000000000002", "GPU-00000000-0000-0000-0000-000000000003"
				_, _ = s.Apply(moved)
				return err
			},
			wantHonest: all, wantLiar: all, wantErr: "node honest",
		},
		"are given out once the first object is gone": {
			play: func(t *testing.T, s *State) error {
				t.Helper()
				s.synced.Store(true)
				_, _ = s.Apply(honest(t))
				_, err := s.Apply(liar(t))
				s.Remove("honest", honest(t).UID)
				return err
			},
			wantLiar: all, wantErr: "node honest", wantFreed: 1,
		},
		"belong to the older object at a start, however the list is sorted": {
			play: func(t *testing.T, s *State) error {
				t.Helper()
				older := honest(t)
				older.CreationTimestamp = metav1.Unix(500, 0)
				_, first := s.Apply(liar(t))
				_, err := s.Apply(older)
				if first != nil {
					t.Errorf("nobody had them, but: %v", first)
				}
				return err
			},
			wantHonest: all, wantLiar: all &^ 0b100100, wantFault: true,
		},
		"go on being the first node's while it publishes": {
			play: func(t *testing.T, s *State) error {
				t.Helper()
				s.synced.Store(true)
				_, _ = s.Apply(honest(t))
				_, err := s.Apply(liar(t))
				for i := range 5 {
					again := []*v1alpha1.NodeGPUTopology{honest(t), liar(t)}[i%2]
					again.ResourceVersion = string(rune('2' + i))
					if _, err := s.Apply(again); err != nil {
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
			s := fuzzState()
			freed := 0
			s.onFreed = func() { freed++ }
			err := tc.play(t, s)
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
			if h, l := given(s, "honest"), given(s, "liar"); h != tc.wantHonest || l != tc.wantLiar {
				t.Errorf("honest gives out %b and liar %b, want %b and %b", h, l, tc.wantHonest, tc.wantLiar)
			}
			if freed != tc.wantFreed {
				t.Errorf("pods were woken %d times, want %d", freed, tc.wantFreed)
			}
			f := s.cells.get("liar").topology.fault.Load()
			if tc.wantFault != (f != nil) || f != nil && (f.object != "topology-liar" || !strings.Contains(f.text, "node honest already")) {
				t.Errorf("what is said of the liar's object is %+v, want anything: %t", f, tc.wantFault)
			}
			if f := s.cells.get("honest"); f != nil && f.topology.fault.Load() != nil {
				t.Errorf("of the honest one is said: %s", f.topology.fault.Load().text)
			}
			for _, node := range []string{"honest", "liar"} {
				if n := s.Node(node); n != nil && int(n.Idle.Free(testResource)) != given(s, node) {
					t.Errorf("an empty %s has %b free, but gives out %b", node, n.Idle.Free(testResource), given(s, node))
				}
			}
		})
	}
}

// TestDevicesThatAreOnlyNumberedAreNoContest: Ascend910-0 is on every node.
func TestDevicesThatAreOnlyNumberedAreNoContest(t *testing.T) {
	s := fuzzState()
	for _, name := range []string{"a", "b"} {
		obj := topologyOf(t, name, "a100-pcie-4-bridged")
		for i := range obj.Spec.GPUs {
			obj.Spec.GPUs[i].ID = "Ascend910-" + string(rune('0'+i))
		}
		if _, err := s.Apply(obj); err != nil {
			t.Errorf("node %s: %v", name, err)
		}
		if got := s.Node(name).Accel(testResource).Healthy.Len(); got != 4 {
			t.Errorf("node %s gives out %d of 4", name, got)
		}
	}
	if len(s.contest.nodes) != 0 {
		t.Errorf("ids that are not unique are kept: %v", s.contest.nodes)
	}
}

// TestTheEndOfAContestEndsNoOtherFault: what an agent wrote may read like a contest.
func TestTheEndOfAContestEndsNoOtherFault(t *testing.T) {
	s := fuzzState()
	s.synced.Store(true)
	honest, liar := topologyOf(t, "honest", "dgx-h100"), topologyOf(t, "liar", "dgx-h100")
	liar.Spec.GPUs[2].ID = honest.Spec.GPUs[2].ID
	liar.Status.Allocations = []v1alpha1.Allocation{{PodUID: "p", CPUs: "0 is published by node honest"}}
	_, _ = s.Apply(honest)
	_, _ = s.Apply(liar)
	fault := func() string {
		if f := s.cells.get("liar").topology.fault.Load(); f != nil {
			return f.text
		}
		return ""
	}
	for _, want := range []string{"status.allocations[0].cpus", "spec.gpus"} {
		if !strings.Contains(fault(), want) {
			t.Errorf("before the other object went, what is said is %q, want %s", fault(), want)
		}
	}
	s.Remove("honest", honest.UID)
	if got := fault(); !strings.Contains(got, "status.allocations[0].cpus") || strings.Contains(got, "spec.gpus") {
		t.Errorf("after it went, what is said is %q, want status.allocations[0].cpus alone", got)
	}
}
