// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// checked is a flavor of the scenario's nodes and a queue of tenant a whose quota is no bound. Its jobs
// pass the placement check before they start.
const checked = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: POOL}
spec: {nodeLabels: {pool.nvtopo.dev/pool: POOL}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: POOL}
spec:
  namespaceSelector: {matchLabels: {pool.nvtopo.dev/tenant: POOL-a}}
  queueingStrategy: BestEffortFIFO
  preemption: {withinClusterQueue: LowerPriority}
  admissionChecksStrategy: {admissionChecks: [{name: nvtopo-placement}]}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: POOL, resources: [{name: nvidia.com/gpu, nominalQuota: QUOTA}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: POOL, namespace: POOL-a}
spec: {clusterQueue: POOL}
`

// checkedQueue creates the queue, with a quota of GPUs.
func (s *scenario) checkedQueue(t *testing.T, quota int) {
	t.Helper()
	s.tenants(t, "a")
	s.yaml(t, strings.ReplaceAll(checked, "QUOTA", strconv.Itoa(quota)))
}

// rack returns a rack name unique to the test: the fabric is that of the whole cluster.
func rack(t *testing.T, i int) string {
	t.Helper()
	return fmt.Sprintf("%s-%d", strings.ToLower(t.Name()), i)
}

// gang creates a Job whose pods are placed together, with their requirements on the fabric.
func (s *scenario) gang(t *testing.T, name string, w work, wishes map[string]string) {
	t.Helper()
	if err := s.priorityClass(t.Context(), w.priority); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), s.gangObject(name, w, wishes)); err != nil {
		t.Fatal(err)
	}
}

// gangObject returns the Job of a gang.
func (s *scenario) gangObject(name string, w work, wishes map[string]string) *batchv1.Job {
	job := s.jobObject("a", name, &w)
	indexed := batchv1.IndexedCompletion
	job.Spec.CompletionMode = &indexed
	annotations := map[string]string{gangrequest.GangKey: name, gangrequest.GangSizeKey: strconv.Itoa(int(w.pods))}
	maps.Copy(annotations, job.Spec.Template.Annotations)
	maps.Copy(annotations, wishes)
	job.Spec.Template.Annotations = annotations
	return job
}

// check returns the placement check's state of a job; empty if the job has none.
func (s *scenario) check(ctx context.Context, job string) (c kueue.AdmissionCheckState, w *kueue.Workload, err error) {
	w, err = s.workload(ctx, "a", job)
	if err != nil || w == nil {
		return c, w, err
	}
	for i := range w.Status.AdmissionChecks {
		if w.Status.AdmissionChecks[i].Name == names.CheckPlacementObject {
			c = w.Status.AdmissionChecks[i]
		}
	}
	return c, w, nil
}

// paused waits until a job has no quota, because the check found no place for this reason.
func (s *scenario) paused(t *testing.T, job, why string) {
	t.Helper()
	s.waitFor(t, "job "+job+" is paused", func(ctx context.Context) (bool, string) {
		c, w, err := s.check(ctx, job)
		if err != nil || w == nil {
			return false, fmt.Sprint(w, err)
		}
		done := w.Status.RequeueState != nil && w.Status.RequeueState.RequeueAt != nil && w.Status.Admission == nil && c.State == kueue.CheckPending
		return done && strings.Contains(c.Message, why), fmt.Sprintf("check %+v, requeue %+v, conditions %+v", c, w.Status.RequeueState, w.Status.Conditions)
	})
}

// placed waits until the pods of a job run, and returns the check's last state, and their nodes.
func (s *scenario) placed(t *testing.T, job string, pods int) (c kueue.AdmissionCheckState, nodes map[string]int) {
	t.Helper()
	nodes = map[string]int{}
	for _, p := range s.running(t, "a", job, pods) {
		nodes[p.Spec.NodeName]++
	}
	c, w, err := s.check(t.Context(), job)
	if err != nil || w == nil {
		t.Fatalf("job %s: %v, %v", job, w, err)
	}
	if c.State != kueue.CheckReady {
		t.Fatalf("job %s runs, and the check says %+v", job, c)
	}
	return c, nodes
}

// pausesSince returns how many of the check's shortest pauses have passed since a time.
func pausesSince(t time.Time) int { return int(time.Since(t) / (10 * time.Second)) }

// neverBound checks for a duration that no pod of a job is bound.
func (s *scenario) neverBound(t *testing.T, job string, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		for _, p := range s.pods(t, "a", job) {
			if p.Spec.NodeName != "" {
				t.Fatalf("pod %s is bound to %s", p.Name, p.Spec.NodeName)
			}
		}
	}
}

// TestQuotaWithoutPlace is acceptance 33: a gang has quota and no place. It does not hold the quota,
// others run meanwhile, and it starts when there is a place.
func TestQuotaWithoutPlace(t *testing.T) {
	s := newScenario(t, dgx(4)...)
	s.checkedQueue(t, 48)
	s.job(t, "a", "blocker", work{gpus: 1})
	blocker := s.running(t, "a", "blocker", 1)

	began := time.Now()
	s.gang(t, "whole", work{pods: 4, gpus: 8, priority: 5}, nil)
	s.paused(t, "whole", "cluster: 3 of 4")
	s.jobs(t, "a", "single", 8, work{gpus: 1})
	s.waitBound(t, map[string]int64{"a": 9})
	s.neverBound(t, "whole", time.Minute)
	if got := s.evicted("a"); len(got) != 1 || got["whole"] == 0 {
		t.Errorf("evictions %v, want those of job whole only", got)
	}
	// The largest number of pauses that fit into the elapsed time, if none of them is extended.
	if n, most := s.evictedAfterPause(), pausesSince(began); n > most {
		t.Errorf("a job that was paused had quota without a place %d times, want %d at most", n, most)
	}
	_, w, err := s.check(t.Context(), "whole")
	if err != nil {
		t.Fatal(err)
	}
	if w.Status.Admission != nil {
		t.Errorf("job whole holds quota without a place: %+v", w.Status.Admission)
	}

	for i := range 8 {
		s.end(t, s.pods(t, "a", "single-"+strconv.Itoa(i))[0])
	}
	ended := time.Now()
	s.end(t, blocker[0])
	_, nodes := s.placed(t, "whole", 4)
	t.Logf("job whole runs %s after its place was free; evictions %v", time.Since(ended).Round(100*time.Millisecond), s.evicted("a"))
	if len(nodes) != 4 {
		t.Errorf("its pods are on %v", nodes)
	}
}

// TestGangRack is acceptance 36 and 43: a gang that communicates gets four whole nodes of one rack, which
// its pods select from then on; the estimates are those of the requirement.
func TestGangRack(t *testing.T) {
	a, b := rack(t, 0), rack(t, 1)
	s := newScenario(t, racked(4, a, b)...)
	s.checkedQueue(t, 64)
	s.job(t, "a", "other", work{gpus: 1})
	taken, free := a, b
	if s.rackOf(t, s.running(t, "a", "other", 1)[0].Spec.NodeName) == b {
		taken, free = b, a
	}
	s.gang(t, "train", work{pods: 4, gpus: 8}, map[string]string{gangrequest.StrategyKey: "communication_heavy"})
	c, nodes := s.placed(t, "train", 4)
	if want := "optimal (same rack): 4 pods on 4 nodes of rack " + free + ", all-reduce of 1 GB in 14.6484375 ms"; c.Message != want {
		t.Errorf("the check says %q, want %q", c.Message, want)
	}
	if got := c.PodSetUpdates[0].NodeSelector; got[rackLabel] != free || len(got) != 1 {
		t.Errorf("the check selects %v, want rack %s and nothing else", got, free)
	}
	for node := range nodes {
		if got := s.rackOf(t, node); got != free || len(nodes) != 4 {
			t.Errorf("the pods are on %v, want four nodes of rack %s; rack %s has another's pod", nodes, free, taken)
		}
	}
	for _, p := range s.pods(t, "a", "train") {
		if p.Spec.NodeSelector[rackLabel] != free {
			t.Errorf("pod %s selects %v", p.Name, p.Spec.NodeSelector)
		}
		if p.Labels[kueue.LabelPodSet] == "" {
			t.Errorf("pod %s has the labels %v: the scheduler cannot know that Kueue admitted it, and may be patient", p.Name, p.Labels)
		}
	}
	s.estimates(t, "train", fabric.QualitySameRack, gangrequest.Estimate{Ring: 14.6484375, Tree: 39.0625, Other: 0.4})

	s.gang(t, "small", work{pods: 2, gpus: 2}, nil)
	if _, nodes := s.placed(t, "small", 2); len(nodes) != 1 {
		t.Errorf("the pods of the small gang are on %v, want one node", nodes)
	}
	s.estimates(t, "small", fabric.QualityOneNode, gangrequest.Estimate{})
}

// TestGangSpread is acceptance 39: a gang that computes is spread over the racks.
func TestGangSpread(t *testing.T) {
	a, b := rack(t, 0), rack(t, 1)
	s := newScenario(t, racked(4, a, b)...)
	s.checkedQueue(t, 64)
	s.gang(t, "train", work{pods: 4, gpus: 8}, map[string]string{gangrequest.StrategyKey: "compute_heavy"})
	c, nodes := s.placed(t, "train", 4)
	if want := "acceptable (adjacent racks): 4 pods on 4 nodes, all-reduce of 1 GB in 29.296875 ms"; c.Message != want {
		t.Errorf("the check says %q, want %q", c.Message, want)
	}
	if got := c.PodSetUpdates[0].NodeSelector; len(got) > 0 {
		t.Errorf("the check selects %v", got)
	}
	racks := map[string]int{}
	for node, pods := range nodes {
		racks[s.rackOf(t, node)] += pods
	}
	if racks[a] != 2 || racks[b] != 2 {
		t.Errorf("pods by rack: %v, want 2 and 2", racks)
	}
	s.estimates(t, "train", fabric.QualityAdjacent, gangrequest.Estimate{Ring: 29.296875, Tree: -1, Other: -1})
}

// rackOf returns the rack of a node.
func (s *scenario) rackOf(t *testing.T, node string) string {
	t.Helper()
	var n v1.Node
	s.get(t, &n, "", node)
	return n.Labels[rackLabel]
}

// estimates checks the scheduler's estimate of a gang's place, on the pod of its first rank. Fields of
// want below 0 are not compared.
func (s *scenario) estimates(t *testing.T, job, quality string, want gangrequest.Estimate) {
	t.Helper()
	s.waitFor(t, "the scheduler writes how good the place of job "+job+" is", func(context.Context) (bool, string) {
		var got gangrequest.Placement
		for _, p := range s.pods(t, "a", job) {
			text, ok := p.Annotations[gangrequest.PlacementKey]
			if !ok {
				continue
			}
			parsed, err := gangrequest.ParsePlacement(text)
			if err != nil {
				t.Fatal(err)
			}
			got = *parsed
		}
		same := func(got, want gangrequest.Millis) bool { return want < 0 || got == want }
		done := got.Quality == quality && same(got.Estimate.Ring, want.Ring) && same(got.Estimate.Tree, want.Tree) && same(got.Estimate.Other, want.Other)
		return done, fmt.Sprintf("got %+v, want %s %+v", got, quality, want)
	})
}

// TestGangAmongPods is acceptance 40: a gang of sixteen among two hundred single pods starts together or
// not at all.
func TestGangAmongPods(t *testing.T) {
	const singles, members = 200, 16
	s := newScenario(t, dgx(8)...)
	s.checkedQueue(t, 64)
	s.jobs(t, "a", "single", singles, work{gpus: 1, runs: 4 * time.Second})
	s.gang(t, "train", work{pods: members, gpus: 2, priority: 5}, nil)
	var first, last time.Time
	s.waitFor(t, "all members are bound", func(context.Context) (bool, string) {
		bound := 0
		for _, p := range s.pods(t, "a", "train") {
			if p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				bound++
			}
		}
		now := time.Now()
		switch {
		case bound == 0 && !first.IsZero():
			testkit.Violation(t, "members were bound, and then none")
			t.FailNow()
		case bound > 0 && first.IsZero():
			first = now
		}
		last = now
		return bound == members, fmt.Sprintf("%d bound", bound)
	})
	t.Logf("%d members were bound within %s of the first; evictions %d", members, last.Sub(first).Round(100*time.Millisecond), len(s.evictions()))
	s.waitFor(t, "all single jobs end", func(ctx context.Context) (bool, string) {
		var jobs batchv1.JobList
		if err := s.List(ctx, &jobs, client.InNamespace(s.tenant("a"))); err != nil {
			return false, err.Error()
		}
		done := 0
		for i := range jobs.Items {
			done += int(jobs.Items[i].Status.Succeeded)
		}
		return done == singles, fmt.Sprintf("%d of %d ended", done, singles)
	})
}

// TestTwoLargeGangs is acceptance 41: of two gangs of five nodes on eight one runs, and the other waits
// whole.
func TestTwoLargeGangs(t *testing.T) {
	s := newScenario(t, dgx(8)...)
	s.checkedQueue(t, 80)
	s.gang(t, "one", work{pods: 5, gpus: 8}, nil)
	s.gang(t, "two", work{pods: 5, gpus: 8}, nil)
	s.waitBound(t, map[string]int64{"a": 40})
	runs, waits := "one", "two"
	if len(s.pods(t, "a", "one")) == 0 {
		runs, waits = "two", "one"
	}
	s.placed(t, runs, 5)
	s.paused(t, waits, "cluster: 3 of 5")
	s.neverBound(t, waits, quiet)
	for _, p := range s.pods(t, "a", runs) {
		s.end(t, p)
	}
	s.placed(t, waits, 5)
}

// TestKillAtPermit is acceptance 42: the scheduler is killed while the members of a gang wait for each
// other. The gang is placed as without the kill.
func TestKillAtPermit(t *testing.T) {
	l := newTestEnv(t)
	a, b := rack(t, 0), rack(t, 1)
	s := newScenarioOn(t, l, racked(4, a, b)...)
	s.checkedQueue(t, 64)
	s.gang(t, "train", work{pods: 4, gpus: 8}, nil)
	scheduler := l.Schedulers()[0]
	s.waitFor(t, "the gang has pods", func(context.Context) (bool, string) {
		pods := s.pods(t, "a", "train")
		return len(pods) > 0, strconv.Itoa(len(pods))
	})
	if err := scheduler.Kill(); err != nil {
		t.Fatal(err)
	}
	bound := 0
	for _, p := range s.pods(t, "a", "train") {
		if p.Spec.NodeName != "" {
			bound++
		}
	}
	t.Logf("the scheduler was killed with %d of 4 members bound", bound)
	if err := scheduler.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, nodes := s.placed(t, "train", 4)
	for node := range nodes {
		if got := s.rackOf(t, node); len(nodes) != 4 || got != c.PodSetUpdates[0].NodeSelector[rackLabel] {
			t.Errorf("the pods are on %v, want four nodes of the rack of %+v", nodes, c)
		}
	}
	if got := s.evictions(); len(got) > 0 {
		t.Errorf("evictions %v, want none", got)
	}
}

// TestPromiseRecovery kills the pool controller after it promised a place and before the pods are bound,
// and again while a job is paused: no place is promised twice, and the job starts when there is a place.
func TestPromiseRecovery(t *testing.T) {
	l := newTestEnv(t)
	s := newScenarioOn(t, l, dgx(2)...)
	s.checkedQueue(t, 64)
	scheduler := l.Schedulers()[0]
	if err := scheduler.Pause(); err != nil { // pods stay unbound
		t.Fatal(err)
	}
	s.gang(t, "first", work{pods: 2, gpus: 8}, nil)
	s.waitFor(t, "the first job has a place promised", func(ctx context.Context) (bool, string) {
		c, _, err := s.check(ctx, "first")
		return c.State == kueue.CheckReady, fmt.Sprint(c, err)
	})
	t.Cleanup(l.keepRunning())
	again := func() {
		t.Helper()
		if err := l.pools.Kill(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, patience, "the pool controller serves again", func(context.Context) (bool, string) { return l.pools.Alive(), "" })
	}
	again()
	s.gang(t, "second", work{pods: 1, gpus: 8}, nil)
	s.paused(t, "second", "cluster: 0 of 1")
	if err := scheduler.Resume(); err != nil {
		t.Fatal(err)
	}
	first := s.running(t, "a", "first", 2)
	again()
	s.neverBound(t, "second", quiet)
	s.end(t, first[0])
	s.placed(t, "second", 1)
}

// TestGangTurns checks that of many gangs with quota, of which one fits at a time, each gets its turn.
func TestGangTurns(t *testing.T) {
	const gangs = 12
	s := newScenario(t, dgx(4)...)
	s.checkedQueue(t, gangs*24)
	began := time.Now()
	for i := range gangs {
		s.gang(t, "gang-"+strconv.Itoa(i), work{pods: 3, gpus: 8, runs: 2 * time.Second}, nil)
	}
	s.waitFor(t, "all gangs end", func(ctx context.Context) (bool, string) {
		var jobs batchv1.JobList
		if err := s.List(ctx, &jobs, client.InNamespace(s.tenant("a"))); err != nil {
			return false, err.Error()
		}
		done := 0
		for i := range jobs.Items {
			if jobs.Items[i].Status.Succeeded == 3 {
				done++
			}
		}
		return done == gangs, fmt.Sprintf("%d of %d ended", done, gangs)
	})
	// A paused job is evicted again if its place was taken by another gang, at most once for each gang, or
	// if its pause was not extended in time, on a slow machine: once in a pause.
	evictions, inVain := s.evictions(), s.evictedAfterPause()
	t.Logf("%d gangs of which one fits ended in %s, with %d evictions, %d of jobs that had paused", gangs, time.Since(began).Round(time.Second), len(evictions), inVain)
	if most := max(gangs/2, pausesSince(began)); inVain > most {
		t.Errorf("%d times a job that had paused had quota without a place, want %d at most", inVain, most)
	}
	for _, e := range evictions {
		if e.reason != kueue.EvictedByAdmissionCheck {
			t.Errorf("job %s was evicted for %s: %s", e.job, e.reason, e.detail)
		}
	}
}

// TestPromisedModels checks that, in a pool of two GPU models, a gang whose pods come first does not take
// the model that was promised to another gang before it. No pod is evicted.
func TestPromisedModels(t *testing.T) {
	l := newTestEnv(t)
	s := newScenarioOn(t, l, slices.Concat(
		slices.Repeat([]devcluster.NodeSpec{{Machine: "hgx-h200"}}, 3), slices.Repeat([]devcluster.NodeSpec{{Machine: "l40s-8"}}, 2))...)
	s.checkedQueue(t, 64)
	scheduler := l.Schedulers()[0]
	if err := scheduler.Pause(); err != nil { // pods stay unbound
		t.Fatal(err)
	}
	promised := func(job string, want string) {
		t.Helper()
		s.waitFor(t, "job "+job+" has a place promised", func(ctx context.Context) (bool, string) {
			c, _, err := s.check(ctx, job)
			return c.State == kueue.CheckReady, fmt.Sprint(c, err)
		})
		s.waitFor(t, "the pods of job "+job+" have the model", func(context.Context) (bool, string) {
			pods := s.pods(t, "a", job)
			for _, p := range pods {
				if got := p.Annotations[podrequest.PromisedModelKey]; got != want {
					t.Fatalf("pod %s was promised %q, want %q", p.Name, got, want)
				}
			}
			return len(pods) > 0, "no pods"
		})
	}
	s.gang(t, "three", work{pods: 3, gpus: 8}, nil)
	promised("three", "NVIDIA H200")
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Value: 10}
	if err := s.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	s.gangFirst(t, "two", class.Name, work{pods: 2, gpus: 8})
	promised("two", "NVIDIA L40S")
	if err := scheduler.Resume(); err != nil {
		t.Fatal(err)
	}
	s.placed(t, "two", 2)
	s.placed(t, "three", 3)
	if got := s.evictions(); len(got) > 0 {
		t.Errorf("evictions %v, want none", got)
	}
}

// gangFirst creates a gang whose pods the scheduler takes before others.
func (s *scenario) gangFirst(t *testing.T, name, class string, w work) {
	t.Helper()
	job := s.gangObject(name, w, nil)
	job.Spec.Template.Spec.PriorityClassName = class
	if err := s.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}
