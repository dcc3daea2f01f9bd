// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
)

// TestUncachedWrites: a write is used until the cache has it. The cache may still show a job as
// undecided which was promised a place a moment ago.
func TestUncachedWrites(t *testing.T) {
	version := func(name, v string, state kueue.CheckState) *kueue.Workload {
		w := job(name, 1, 1, nil)
		w.ResourceVersion, checkOf(w).State = v, state
		return w
	}
	r := &Reconciler{written: map[types.UID]*kueue.Workload{
		"behind": version("behind", "9", kueue.CheckReady), "same": version("same", "9", kueue.CheckReady),
		"ahead": version("ahead", "9", kueue.CheckReady), "gone": version("gone", "9", kueue.CheckReady),
	}}
	w := &World{Objects: clusterobjects.Objects{Workloads: []kueue.Workload{
		*version("behind", "8", kueue.CheckPending), *version("same", "9", kueue.CheckReady), *version("ahead", "10", kueue.CheckPending), *version("other", "1", kueue.CheckPending),
	}}}
	if err := r.overlay(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	want := map[string]kueue.CheckState{"behind": kueue.CheckReady, "same": kueue.CheckReady, "ahead": kueue.CheckPending, "other": kueue.CheckPending}
	for i := range w.Workloads {
		if got := checkOf(&w.Workloads[i]).State; got != want[w.Workloads[i].Name] {
			t.Errorf("job %s: got %s, want %s", w.Workloads[i].Name, got, want[w.Workloads[i].Name])
		}
	}
	if len(r.written) != 1 || r.written["behind"] == nil {
		t.Errorf("what is remembered: %v, want the one that the cache does not have yet", r.written)
	}
}
