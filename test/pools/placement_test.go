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

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// checked is a flavor of the scenario's nodes and a queue of tenant a whose quota is no bound. Its
// jobs are asked for a place before they start.
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

// checkedQueue makes the queue, with a quota of so many GPUs.
func (s *scenario) checkedQueue(t *testing.T, quota int) {
	t.Helper()
	s.tenants(t, "a")
	s.yaml(t, strings.ReplaceAll(checked, "QUOTA", strconv.Itoa(quota)))
}

// rack is a name that no other scenario's racks have: the fabric is that of the whole cluster.
func rack(t *testing.T, i int) string { return fmt.Sprintf("%s-%d", strings.ToLower(t.Name()), i) }

// gang makes a Job whose pods are placed together, with what they ask of the fabric.
func (s *scenario) gang(t *testing.T, name string, w work, wishes map[string]string) {
	t.Helper()
	if err := s.priorityClass(t.Context(), w.priority); err != nil {
		t.Fatal(err)
	}
	job := s.jobObject("a", name, &w)
	indexed := batchv1.IndexedCompletion
	job.Spec.CompletionMode = &indexed
	job.Spec.Template.Annotations = map[string]string{gangrequest.GangKey: name, gangrequest.GangSizeKey: strconv.Itoa(int(w.pods))}
	maps.Copy(job.Spec.Template.Annotations, wishes)
	if err := s.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

// check is what the check says of a job; empty if it is not asked.
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

// paused waits until a job has no quota, because the check found no place for such a reason.
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

// placed waits until the pods of a job run, and returns what the check had said, and their nodes.
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

// neverBound checks for a while that no pod of a job is bound.
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

// Acceptance 33: a gang has quota and no place. It does not hold the quota, others run
// meanwhile, and it starts when there is a place.
func TestQuotaWithoutAPlaceIsForOthers(t *testing.T) {
	s := newScenario(t, dgx(4)...)
	s.checkedQueue(t, 40)
	s.job(t, "a", "blocker", work{gpus: 1})
	blocker := s.running(t, "a", "blocker", 1)

	s.gang(t, "whole", work{pods: 4, gpus: 8, priority: 5}, nil)
	s.paused(t, "whole", "cluster: 3 of 4")
	s.jobs(t, "a", "single", 8, work{gpus: 1})
	s.waitBound(t, map[string]int64{"a": 9})
	s.neverBound(t, "whole", time.Minute)
	if got := s.evicted("a"); len(got) != 1 || got["whole"] > 3 {
		t.Errorf("evictions %v, want those of job whole only, 3 at most", got)
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

