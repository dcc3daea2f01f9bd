// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestPromises: an allocation with unknown outcome is returned as its pod will show it, until it is
// decided.
func TestPromises(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := schedtest.Pod("p").GPUs(2).Obj()
	choice := r.attempt(t, pod) // the outcome of its write is unknown
	got, ok := r.Diagnosis.Promises()[pod.UID]
	if !ok || got.UID != pod.UID || got.Node != choice.Node {
		t.Fatalf("promise %+v, %t, want one of %s", got, ok, choice.Node)
	}
	shown := pod.DeepCopy()
	shown.Spec.NodeName, shown.Annotations = got.Node, got.Annotations
	read, err := allocation.Of(shown, got.Node)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(choice.GPUs(testResource), read.GPUs(testResource)); diff != "" {
		t.Errorf("GPUs (-chosen +promised):\n%s", diff)
	}
	r.clock.now = r.clock.now.Add(2 * requestTimeout)
	for _, c := range r.doubts() {
		r.doubtReader.decide(c, pod)
	}
	if left := r.Diagnosis.Promises(); len(left) > 0 {
		t.Errorf("promised after the doubt was decided: %+v", left)
	}
}

// TestLiveLeases: expired Leases are left out.
func TestLiveLeases(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	var names []string
	for _, l := range r.Diagnosis.LiveLeases() {
		names = append(names, l.Name)
		if l.NodeUID == "" || l.Node == "" {
			t.Errorf("lease %+v", l)
		}
	}
	slices.Sort(names)
	if len(names) != 2 {
		t.Fatalf("leases %v, want the exporter's and the agent's", names)
	}
	r.clock.now = r.clock.now.Add(365 * 24 * time.Hour)
	if left := r.Diagnosis.LiveLeases(); len(left) > 0 {
		t.Errorf("leases a year later: %+v", left)
	}
}
