// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// answers returns the states that a round writes, by job; Release is one of them.
func answers(w *testEnv, g *Graphs) map[string]string {
	steps, _ := NextRound(&w.World, g)
	out := map[string]string{}
	for _, s := range steps {
		out[s.Workload.Name] = string(s.Kind)
		if s.Check != nil {
			out[s.Workload.Name] = string(s.Check.State)
		}
	}
	return out
}

// carryOut applies the steps of a round as the API server would.
func (e *testEnv) carryOut(g *Graphs) map[string]string {
	steps, _ := NextRound(&e.World, g)
	out := map[string]string{}
	for _, s := range steps {
		if s.Check != nil {
			s.Workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{*s.Check}
			out[s.Workload.Name] = string(s.Check.State)
		}
	}
	return out
}

// TestTwoJobsOnePlace: two jobs are not promised one place.
func TestTwoJobsOnePlace(t *testing.T) {
	w, g := newTestEnv(t), NewGraphs()
	w.racks(4, "a")
	first, second := job("first", 3, 8, gangOf("first", 3)), job("second", 3, 8, gangOf("second", 3))
	second.Spec.Priority = new(int32(5))
	single, late := job("single", 1, 8, nil), job("late", 1, 8, nil)
	late.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(time.Second))
	w.Workloads = []kueue.Workload{*first, *late, *single, *second}
	want := map[string]string{"first": "Retry", "late": "Retry", "second": "Ready", "single": "Ready"}
	if got := w.carryOut(g); !equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// Nothing of this is remembered but in the objects.
	for i := range w.Workloads {
		if checkOf(&w.Workloads[i]).State == kueue.CheckRetry {
			checkOf(&w.Workloads[i]).State = kueue.CheckPending
		}
	}
	if got, want := answers(w, NewGraphs()), map[string]string{"first": "Retry", "late": "Retry"}; !equal(got, want) {
		t.Errorf("after a restart got %v, want %v", got, want)
	}
	// Pods that are bound count by themselves, and the promise ends with them.
	for _, p := range []struct{ name, node string }{{"second-0", "a-0"}, {"second-1", "a-1"}, {"second-2", "a-2"}} {
		w.pod(p.name, p.node, func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "second", UID: "job-second", Controller: new(true)}}
		}, 0, 1, 2, 3, 4, 5, 6, 7)
	}
	w.node("b-0", "dgx-a100", nil)
	if got, want := answers(w, g), map[string]string{"first": "Retry", "late": "Ready"}; !equal(got, want) {
		t.Errorf("with the pods of the second bound and one node more got %v, want %v", got, want)
	}
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if a[k] != b[k] {
			return false
		}
	}
	return true
}

// evict does Kueue's writes for a Workload whose check is Retry.
func evict(w *kueue.Workload) {
	c := checkOf(w)
	message := `Evicted due to AdmissionCheck in Retry state: "nvtopo-placement" (` + c.Message + ")"
	*c = kueue.AdmissionCheckState{Name: c.Name, State: kueue.CheckPending, Message: "Reset to Pending after eviction. Previously: Retry", RetryCount: new(retries(c) + 1), LastTransitionTime: metav1.NewTime(noon)}
	meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.EvictedByAdmissionCheck, Message: message, LastTransitionTime: c.LastTransitionTime,
	})
}

// dequeue does the writes that follow when the job is stopped.
func dequeue(w *kueue.Workload) {
	meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse})
	meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Reason: kueue.EvictedByAdmissionCheck})
	w.Status.Admission = nil
}

// requeue makes a job one that waited, and whose pause has just ended. It is in Kueue's queue next.
func requeue(w *kueue.Workload) {
	evict(w)
	dequeue(w)
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{*hold(w, noon).Check}
	w.Status.RequeueState = &kueue.RequeueState{}
}

// TestJobWithoutPlace simulates Kueue's writes between ours.
func TestJobWithoutPlace(t *testing.T) {
	e, g := newTestEnv(t), NewGraphs()
	e.racks(1, "a")
	e.pod("other", "a-0", nil, 0)
	e.Workloads = []kueue.Workload{*job("train", 1, 8, nil)}
	w := &e.Workloads[0]
	c := func() *kueue.AdmissionCheckState { return checkOf(w) }
	take := func(step *Step) {
		t.Helper()
		if step == nil {
			t.Fatalf("there is no step: stage %d, %+v", stageOf(w, e.Now), w.Status)
		}
		w.Status.AdmissionChecks = []kueue.AdmissionCheckState{*step.Check}
	}
	e.carryOut(g)
	if c().State != kueue.CheckRetry || *c().RequeueAfterSeconds != 0 {
		t.Fatalf("got %+v, want Retry without a time, with which Kueue would keep the quota", c())
	}
	if got := nextPause(w, noon); got != nil {
		t.Fatalf("it is Kueue's turn to evict, got %+v", got)
	}
	evict(w)
	take(nextPause(w, noon))
	if c().State != kueue.CheckRetry || *c().RequeueAfterSeconds != 10 || c().Message != "cluster: 0 of 1" {
		t.Fatalf("got %+v, want Retry after 10 seconds, with the reason", c())
	}
	dequeue(w)
	if nextPause(w, noon) != nil || len(answers(e, g)) > 0 {
		t.Fatal("it is Kueue's turn to note the time")
	}
	w.Status.RequeueState = &kueue.RequeueState{RequeueAt: &metav1.Time{Time: noon.Add(10 * time.Second)}}
	take(nextPause(w, noon))
	if c().State != kueue.CheckPending || c().Message != "cluster: 0 of 1" || retries(c()) != 1 {
		t.Fatalf("got %+v, want Pending with the reason", c())
	}
	if got := answers(e, g); len(got) > 0 {
		t.Fatalf("got %v while there is no place, and it is paused", got)
	}
	e.Now = noon.Add(6 * time.Second)
	steps, _ := NextRound(&e.World, g)
	if len(steps) != 1 || steps[0].Kind != Pause || *steps[0].Check.RequeueAfterSeconds != 20 {
		t.Fatalf("shortly before the end of the pause got %+v, want a longer one", steps)
	}
	e.Pods = nil
	if got := answers(e, g); got["train"] != string(Release) {
		t.Fatalf("with a place got %v, want Release", got)
	}
}

// TestNeverFittingJob: a job that never fits keeps no quota, however often it was tried. It leaves
// its turn to one that may fit.
func TestNeverFittingJob(t *testing.T) {
	e, g := newTestEnv(t), NewGraphs()
	e.racks(1, "a")
	e.pod("other", "a-0", nil, 0)
	for _, name := range []string{"never", "starves"} {
		w := job(name, 1, 8, nil)
		checkOf(w).RetryCount = new(int32(starvesAfter))
		if name == "never" {
			w.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"no": "node"}
		}
		e.Workloads = append(e.Workloads, *w)
	}
	if got, want := answers(e, g), map[string]string{"never": "Retry", "starves": "Pending"}; !equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestStarvingJobQuota: a starving job keeps its quota. Small jobs take all released devices as long
// as their quota allows it.
func TestStarvingJobQuota(t *testing.T) {
	e, g := newTestEnv(t), NewGraphs()
	e.racks(1, "a")
	e.pod("other", "a-0", nil, 0)
	for _, name := range []string{"old", "older"} {
		w := job(name, 1, 8, nil)
		checkOf(w).RetryCount = new(int32(starvesAfter))
		e.Workloads = append(e.Workloads, *w)
	}
	steps, again := NextRound(&e.World, g)
	if len(steps) != 2 || steps[0].Check.State != kueue.CheckPending || steps[1].Check.State != kueue.CheckRetry {
		t.Fatalf("got %+v, want one that keeps its quota, and Retry", steps)
	}
	if want := "cluster: 0 of 1; keeps its quota until 2026-11-24T12:10:00Z"; steps[0].Check.Message != want || !again.Equal(noon.Add(keepQuota)) {
		t.Errorf("got %q until %s, want %q", steps[0].Check.Message, again, want)
	}
	e.Now = noon.Add(keepQuota)
	if got, want := answers(e, g), map[string]string{"old": "Retry", "older": "Retry"}; !equal(got, want) {
		t.Errorf("after that time got %v, want %v", got, want)
	}
	// Without quota it is let into its queue again, one at a time.
	for i := range e.Workloads {
		w := &e.Workloads[i]
		checkOf(w).State = kueue.CheckRetry
		evict(w)
		dequeue(w)
		w.Status.RequeueState = &kueue.RequeueState{RequeueAt: &metav1.Time{Time: e.Now.Add(time.Second)}}
	}
	if got, want := answers(e, g), map[string]string{"older": "Retry"}; !equal(got, want) {
		t.Errorf("got %v, want a longer pause for one of them only: %v", got, want)
	}
}

// TestHeldJobNotices: one place does not release all held jobs.
func TestHeldJobNotices(t *testing.T) {
	e, g := newTestEnv(t), NewGraphs()
	e.racks(1, "a")
	for i, name := range []string{"a", "b", "c"} {
		w := job(name, 1, 4, nil)
		w.Spec.Priority = new(int32(i))
		c := checkOf(w)
		c.State, c.Message = kueue.CheckRetry, "cluster: 0 of 1"
		evict(w)
		dequeue(w)
		w.Status.RequeueState = &kueue.RequeueState{RequeueAt: &metav1.Time{Time: noon.Add(time.Minute)}}
		e.Workloads = append(e.Workloads, *w)
	}
	if got, want := answers(e, g), map[string]string{"b": "Release", "c": "Release"}; !equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	e.Topologies = nil
	if got, want := answers(e, g), map[string]string{"a": "Release", "b": "Release", "c": "Release"}; !equal(got, want) {
		t.Errorf("without any topology got %v, want %v", got, want)
	}
}

// requeued returns Kueue's condition that a job is in its queue again.
func requeued(at time.Time) metav1.Condition {
	return metav1.Condition{Type: kueue.WorkloadRequeued, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}
}

// TestPlaceKeeping: rounds before Kueue has given quota to a job that was released for a place keep
// the place.
func TestPlaceKeeping(t *testing.T) {
	e, g := newTestEnv(t), NewGraphs()
	e.racks(1, "a")
	told, other := job("told", 1, 8, nil), job("other", 1, 8, nil)
	other.Spec.Priority = new(int32(5)) // it would be told first
	requeue(told)
	requeue(other)
	other.Status.RequeueState.RequeueAt = &metav1.Time{Time: noon.Add(time.Minute)}
	e.Workloads = []kueue.Workload{*told, *other}
	if got := answers(e, g); len(got) > 0 {
		t.Errorf("got %v, want nothing: the place is kept for the job that was told of it", got)
	}
	meta.SetStatusCondition(&e.Workloads[0].Status.Conditions, requeued(noon.Add(-queuedFor-time.Second)))
	if got, want := answers(e, g), map[string]string{"other": "Release"}; !equal(got, want) {
		t.Errorf("of a job that gets no quota: got %v, want %v", got, want)
	}
}

// TestStarvingJobTurns: while a starving job is about to get quota, the pause of another one is
// extended.
func TestStarvingJobTurns(t *testing.T) {
	e, g := newTestEnv(t), NewGraphs()
	e.racks(1, "a")
	e.pod("other", "a-0", nil, 0)
	for _, name := range []string{"first", "second"} {
		w := job(name, 1, 8, nil)
		checkOf(w).RetryCount = new(int32(starvesAfter))
		requeue(w)
		e.Workloads = append(e.Workloads, *w)
	}
	e.Workloads[1].Status.RequeueState.RequeueAt = &metav1.Time{Time: noon.Add(2 * time.Second)}
	if got, want := answers(e, g), map[string]string{"second": "Retry"}; !equal(got, want) {
		t.Errorf("got %v, want a longer pause for the second: %v", got, want)
	}
}

func TestStages(t *testing.T) {
	tests := map[string]struct {
		change func(*kueue.Workload)
		want   stage
	}{
		"has quota":              {func(*kueue.Workload) {}, asking},
		"was told to start":      {func(w *kueue.Workload) { checkOf(w).State = kueue.CheckReady }, promised},
		"has no quota":           {func(w *kueue.Workload) { w.Status.Conditions = nil }, elsewhere},
		"is not asked":           {func(w *kueue.Workload) { w.Status.AdmissionChecks = nil }, elsewhere},
		"is being deleted":       {func(w *kueue.Workload) { w.DeletionTimestamp = &metav1.Time{Time: noon} }, elsewhere},
		"is not active":          {func(w *kueue.Workload) { w.Spec.Active = new(false) }, elsewhere},
		"was rejected by others": {func(w *kueue.Workload) { checkOf(w).State = kueue.CheckRejected }, elsewhere},
		"was admitted without our check": {func(w *kueue.Workload) {
			w.Status.AdmissionChecks = nil
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue})
		}, promised},
		"has finished": {func(w *kueue.Workload) {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
		}, elsewhere},
		"is about to be evicted":               {func(w *kueue.Workload) { checkOf(w).State = kueue.CheckRetry }, elsewhere},
		"was evicted, and has its quota still": {func(w *kueue.Workload) { checkOf(w).State = kueue.CheckRetry; evict(w) }, evicted},
		"was evicted, and is in its queue again": {func(w *kueue.Workload) {
			checkOf(w).State = kueue.CheckRetry
			evict(w)
			dequeue(w)
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadRequeued, Status: metav1.ConditionTrue})
		}, elsewhere},
		"another check asked for the pause": {func(w *kueue.Workload) {
			evict(w)
			checkOf(w).RetryCount = nil
			dequeue(w)
			w.Status.RequeueState = &kueue.RequeueState{RequeueAt: &metav1.Time{Time: noon.Add(time.Minute)}}
		}, elsewhere},
		"another check had it evicted while it waited for an answer": {func(w *kueue.Workload) {
			requeue(w)
			meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted).LastTransitionTime = metav1.NewTime(noon.Add(time.Minute))
			w.Status.RequeueState.RequeueAt = &metav1.Time{Time: noon.Add(2 * time.Minute)}
		}, elsewhere},
		"its pause has ended before its quota was taken": {func(w *kueue.Workload) {
			requeue(w)
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue})
		}, elsewhere},
		"its pause has ended": {requeue, queued},
		"its pause has ended, and it is in its queue": {func(w *kueue.Workload) {
			requeue(w)
			meta.SetStatusCondition(&w.Status.Conditions, requeued(noon.Add(-queuedFor)))
		}, queued},
		"its pause has ended, and it is in its queue for longer than quota takes": {func(w *kueue.Workload) {
			requeue(w)
			meta.SetStatusCondition(&w.Status.Conditions, requeued(noon.Add(-queuedFor-time.Second)))
		}, elsewhere},
		"a longer pause begins, of which Kueue has no time yet": {func(w *kueue.Workload) {
			requeue(w)
			w.Status.RequeueState.RequeueAt = &metav1.Time{Time: noon.Add(5 * time.Second)}
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{*pause(w, noon, "cluster: 0 of 1", 2).Check}
		}, elsewhere},
		"a longer pause has begun": {func(w *kueue.Workload) {
			requeue(w)
			w.Status.RequeueState.RequeueAt = &metav1.Time{Time: noon.Add(20 * time.Second)}
			w.Status.AdmissionChecks = []kueue.AdmissionCheckState{*pause(w, noon, "cluster: 0 of 1", 2).Check}
		}, timed},
		"was evicted for another reason": {func(w *kueue.Workload) {
			evict(w)
			meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted).Reason = kueue.EvictedByPreemption
		}, elsewhere},
		"Kueue took the time, and it is over": {func(w *kueue.Workload) {
			evict(w)
			dequeue(w)
			c := checkOf(w)
			c.State, c.RequeueAfterSeconds, c.LastTransitionTime = kueue.CheckRetry, new(int32(5)), metav1.NewTime(noon.Add(-6*time.Second))
		}, timed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := job("train", 1, 1, nil)
			tc.change(w)
			if got := stageOf(w, noon); got != tc.want {
				t.Errorf("got stage %d, want %d", got, tc.want)
			}
		})
	}
}

// TestPauseGrowth: pauses grow.
func TestPauseGrowth(t *testing.T) {
	var got []string
	for i := range int32(7) {
		got = append(got, pauseAfter(i).String())
	}
	if want := []string{"10s", "10s", "20s", "40s", "1m0s", "1m0s", "1m0s"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReasonAfterEviction: the reason outlives the eviction.
func TestReasonAfterEviction(t *testing.T) {
	for message, want := range map[string]string{
		`Evicted due to AdmissionCheck in Retry state: "nvtopo-placement" (rack: 3 of 4)`:                     "rack: 3 of 4",
		`Evicted due to AdmissionChecks in Retry state: "a" (b); "nvtopo-placement" (rack: 3 of 4); "z" (no)`: "rack: 3 of 4",
		`Evicted due to AdmissionCheck in Retry state: "nvtopo-placement" (it is (very) full)`:                "it is (very) full",
		"something else": "something else",
	} {
		w := &kueue.Workload{}
		meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Message: message})
		if got := reasonOf(w); got != want {
			t.Errorf("of %q got %q, want %q", message, got, want)
		}
	}
}

// TestPodsReadyTimeout: a PodsReady timeout that is too short is refused.
func TestPodsReadyTimeout(t *testing.T) {
	if err := checkTimeout(LeastPodsReadyTimeout); err != nil {
		t.Error(err)
	}
	err := checkTimeout(LeastPodsReadyTimeout - time.Second)
	if err == nil || !strings.Contains(err.Error(), "--pods-ready-timeout 1m29s") || !strings.Contains(err.Error(), "1m30s or more") {
		t.Errorf("got %v, want an error that names the flag and the least value", err)
	}
}

// TestEndedPodPlaces: no place is planned for pods that have ended, although the Workload has quota
// for them.
func TestEndedPodPlaces(t *testing.T) {
	// less makes n pods of a job reclaimable, which Kueue does when they have succeeded.
	less := func(w *kueue.Workload, n int32) *kueue.Workload {
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: n}}
		return w
	}
	again := less(job("again", 4, 8, nil), 2)
	again.Status.Admission.PodSetAssignments[0].Count = new(int32(2)) // Kueue left them out already
	for name, tc := range map[string]struct {
		job  *kueue.Workload
		want string
	}{
		"all are to come":                     {job("all", 4, 8, nil), "Retry"},
		"two of four have ended":              {less(job("two", 4, 8, nil), 2), "Ready"},
		"two members of a gang have ended":    {less(job("gang", 4, 8, gangOf("gang", 4)), 2), "Ready"},
		"one has ended":                       {less(job("one", 4, 8, nil), 1), "Retry"},
		"the quota is for the other two only": {again, "Ready"},
		"more have ended than there are":      {less(job("more", 4, 8, nil), 9), "Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			w.racks(2, "a")
			w.Workloads = []kueue.Workload{*tc.job}
			if got := answers(w, NewGraphs())[tc.job.Name]; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPartialPromise: a partly fulfilled promise keeps a place for each pod that is still to come,
// and none for ended ones, whether their pods still exist or not.
func TestPartialPromise(t *testing.T) {
	for name, tc := range map[string]struct {
		reclaimable int32
		succeeded   int // existing pods
		want        map[string]string
	}{
		"Kueue and the pods say it": {2, 2, map[string]string{"other": "Ready", "more": "Retry"}},
		"the pods are gone":         {2, 0, map[string]string{"other": "Ready", "more": "Retry"}},
		"Kueue does not say it yet": {0, 2, map[string]string{"other": "Ready", "more": "Retry"}},
		"none has ended":            {0, 0, map[string]string{"other": "Retry", "more": "Retry"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			w.racks(4, "a")
			train := job("train", 4, 8, nil)
			checkOf(train).State = kueue.CheckReady
			train.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: tc.reclaimable}}
			other, more := job("other", 1, 8, nil), job("more", 2, 8, nil)
			more.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(time.Second))
			w.Workloads = []kueue.Workload{*train, *other, *more}
			of := func(phase v1.PodPhase) func(*v1.Pod) {
				return func(p *v1.Pod) {
					p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "train", UID: "job-train", Controller: new(true)}}
					p.Status.Phase = phase
				}
			}
			w.pod("train-bound", "a-0", of(v1.PodRunning), 0, 1, 2, 3, 4, 5, 6, 7)
			for i := range tc.succeeded {
				w.pod("train-ended-"+strconv.Itoa(i), "a-1", of(v1.PodSucceeded), 0, 1, 2, 3, 4, 5, 6, 7)
			}
			if got := answers(w, NewGraphs()); !equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestMissingPods: a failed pod is replaced, a succeeded one is not, and pods of other PodSets are
// ignored.
func TestMissingPods(t *testing.T) {
	w := newTestEnv(t)
	w.racks(1, "a")
	s := NewSnapshot(&w.World, NewGraphs())
	pod := func(name, node string, phase v1.PodPhase) *v1.Pod {
		return testobj.Pod(name).Label(kueue.LabelPodSet, "main").Node(node).Phase(phase).Obj()
	}
	got := s.missingOf(map[string]int{"main": 6}, map[string]int{}, []*v1.Pod{
		pod("bound", "a-0", v1.PodRunning), pod("waits", "", v1.PodPending), pod("done", "a-0", v1.PodSucceeded),
		pod("failed", "a-0", v1.PodFailed), pod("on a node that is gone", "z", v1.PodRunning),
	})
	if got.counts["main"] != 3 || len(got.bound) != 1 {
		t.Errorf("got %+v, want 3 that are missing and one node", got)
	}
}
