// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestBoundPod: a bound pod shows its choice and the best now.
func TestBoundPod(t *testing.T) {
	w := newTestEnv()
	w.node(t, "n0", cube, nil).node(t, "n1", cube, nil).holds(t, "p", "n0", 0, 1) // joined by one NVLink: 25 GB/s
	w.holds(t, "beside", "n0", 2, 3)
	p := w.pod("p")
	a, err := allocation.Of(p, "n0")
	if err != nil {
		t.Fatal(err)
	}
	d := &allocation.Decision{Version: allocation.DecisionVersion, Node: "n0", At: a.Assumed, Band: 2, BestRing: 50_000_000, Candidates: []allocation.Candidate{{Node: "n0", Ring: 25_000_000}}}
	text, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		record       string
		wantDecision bool
		want         string
	}{
		"with the record":          {text, true, "would give a better set now: GPUs"},
		"of another choice":        {strings.Replace(text, d.At.Format(time.RFC3339), now.Format(time.RFC3339), 1), false, "is of another choice"},
		"that cannot be read":      {`{"v":9}`, false, "written by a later release"},
		"written by older release": {"", false, "would give a better set now"},
	} {
		t.Run(name, func(t *testing.T) {
			delete(p.Annotations, allocation.DecisionKey)
			if tc.record != "" {
				p.Annotations[allocation.DecisionKey] = tc.record
			}
			e, err := Pod(w.World, "team", "p")
			if err != nil {
				t.Fatal(err)
			}
			if e.State != Bound || e.Choice == nil || e.Choice.Set == nil || e.Choice.Best == nil {
				t.Fatalf("%+v", e)
			}
			if (e.Choice.Decision != nil) != tc.wantDecision || !strings.Contains(strings.Join(e.Evidence, "; "), tc.want) {
				t.Errorf("decision %+v, evidence %q, want %t and %q", e.Choice.Decision, e.Evidence, tc.wantDecision, tc.want)
			}
			if c := e.Choice; c.Set.BandwidthGBps != 25 || c.Best.BandwidthGBps != 50 {
				t.Errorf("it has %s, and could have %s on %s; want 25 and 50 GB/s", c.Set, c.Best, c.BestNode)
			}
		})
	}
}

// TestBoundOnStaleNode: of a pod whose node is refused now, it is said why another would be chosen.
func TestBoundOnStaleNode(t *testing.T) {
	w := newTestEnv()
	w.node(t, "n0", hopper, nil).node(t, "n1", cube, nil).holds(t, "p", "n0", 0, 1)
	w.silence("n0")
	e, err := Pod(w.World, "team", "p")
	if err != nil {
		t.Fatal(err)
	}
	if said, want := strings.Join(e.Evidence, "; "), "the scheduler would not choose node n0 now: "; !strings.Contains(said, want) || !strings.Contains(said, "; of the others it would choose n1") {
		t.Errorf("evidence %q, want %q", said, want)
	}
}

// TestOtherSchedulerNames: pods are known by their choices, whatever name their scheduler has.
func TestOtherSchedulerNames(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation  func(string) string // of the pod that is bound
		wantSet     string              // of that pod; empty: none
		wantWaiting Cause               // of another pod of the same scheduler
	}{
		"a pod with its choice":            {func(s string) string { return s }, "GPUs 0,1, NV1, 25 GB/s of 50", WaitsForItsTurn},
		"a pod with the choice of another": {func(s string) string { return strings.Replace(s, "uid-p", "uid-q", 1) }, "", OtherScheduler},
		"a pod without a choice":           {func(string) string { return "" }, "", OtherScheduler},
		"a pod with what is none":          {func(string) string { return "{" }, "", OtherScheduler},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil).holds(t, "p", "n0", 0, 1)
			p := w.pod("p")
			p.Spec.SchedulerName = "night-shift"
			p.Annotations[allocation.Key] = tc.annotation(p.Annotations[allocation.Key])
			w.waits(pod("next", 2).Scheduler("night-shift").Obj())
			e, err := Pod(w.World, "team", "p")
			if err != nil {
				t.Fatal(err)
			}
			var set string
			if e.Choice.Set != nil {
				set = e.Choice.Set.String()
			}
			if e.State != Bound || set != tc.wantSet {
				t.Errorf("%s with %q, want %q", e.State, set, tc.wantSet)
			}
			if e, err = Pod(w.World, "team", "next"); err != nil || e.Cause != tc.wantWaiting {
				t.Errorf("the waiting pod: %s, %s (%v), want %s", e.Cause, e.Reason, err, tc.wantWaiting)
			}
		})
	}
}

// TestJobExplanation: a job is explained by the first pod that waits.
func TestJobExplanation(t *testing.T) {
	w := newTestEnv()
	w.node(t, "n0", cube, nil).holds(t, "job-0", "n0", 0, 1, 2, 3, 4, 5, 6, 7)
	w.waits(pod("job-1", 2).Obj())
	for i := range w.Pods {
		w.Pods[i].OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "job", UID: "job"}}
	}
	w.Jobs = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "job", UID: "job"}}}
	e, err := Job(w.World, "team", "job")
	if err != nil {
		t.Fatal(err)
	}
	if e.Kind != "Job" || e.Name != "job" || e.Cause != FewGPUs || len(e.Evidence) == 0 || !strings.Contains(e.Evidence[0], "job-1") {
		t.Errorf("%+v", e)
	}
	w.Jobs[0].Spec.Suspend = new(true)
	if e, err = Job(w.World, "team", "job"); err != nil || e.Cause != Suspended {
		t.Errorf("suspended: %+v, %v", e, err)
	}
}
