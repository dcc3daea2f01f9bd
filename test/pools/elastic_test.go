// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/elasticjob"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// onePool is a pool of which tenant a may use and protect all devices.
const onePool = `
  poolType: gpu
  capacity: {total: %[1]d}
  quotas: [{tenant: POOL-a, protectedLimit: %[1]d}]`

// TestElasticJobLife is scenario 27: a job without competitors grows to its maximum; and scenario 34:
// kubectl scale removes the highest replicas, and the end of the base all others.
func TestElasticJobLife(t *testing.T) {
	s := newScenario(t, dgx(7)...)
	s.pool(t, fmt.Sprintf(onePool, 56), "a")
	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 2, maxReplicas: 7, gpuPerReplica: 8}`)
	s.scaledTo(t, "a", "train", 7)
	s.waitBound(t, map[string]int64{"a": 56})
	s.condition(t, "a", "train", poolv1alpha1.ConditionScaled, metav1.ConditionTrue, elasticjob.ReasonAtMaximum)
	base := uids(s.pods(t, "a", names.BaseJob("train")))
	s.logGrowth(t, "a", "train")

	s.scale(t, "a", "train", 5)
	s.scaledTo(t, "a", "train", 5)
	s.waitFor(t, "the Jobs of the two highest replicas are gone", func(context.Context) (bool, string) {
		got := s.extras(t, "a", "train")
		return slices.Equal(got, []string{"train-x2", "train-x3", "train-x4"}), fmt.Sprint(got)
	})
	s.waitBound(t, map[string]int64{"a": 40})
	if diff := cmp.Diff(base, uids(s.pods(t, "a", names.BaseJob("train")))); diff != "" {
		t.Errorf("the pods of the base are others than before (-before +after)\n%s", diff)
	}

	s.succeed(t, "a", "train")
	s.phase(t, "a", "train", poolv1alpha1.JobCompleted)
	s.waitBound(t, map[string]int64{"a": 0})
	s.waitFor(t, "no extra Job is left", func(context.Context) (bool, string) {
		got := s.extras(t, "a", "train")
		return len(got) == 0, fmt.Sprint(got)
	})
	job := s.elastic(t, "a", "train")
	if st := job.Status; st.Replicas != 0 || st.StartTime == nil || st.CompletionTime == nil {
		t.Errorf("status of a job that ended: %+v", st)
	}
	s.events(t, "a", "train", elasticjob.EventStarted, elasticjob.EventGrown, elasticjob.EventShrunk, elasticjob.EventCompleted)
}

// logGrowth logs how long after the job's creation its last pod started.
func (s *scenario) logGrowth(t *testing.T, tenant, name string) {
	t.Helper()
	made := s.elastic(t, tenant, name).CreationTimestamp.Time
	var last time.Time
	for _, pod := range s.podsOf(t, tenant, client.MatchingLabels{names.LabelElasticJob: name}) {
		if at := pod.Status.StartTime; at != nil && at.After(last) {
			last = at.Time
		}
	}
	t.Logf("the last replica started %v after the job was made", last.Sub(made))
}

// scale scales a job as kubectl scale does.
func (s *scenario) scale(t *testing.T, tenant, name string, replicas int32) {
	t.Helper()
	job := s.elastic(t, tenant, name)
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := s.SubResource("scale").Update(t.Context(), job, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
}

// events waits until events of all these reasons about an ElasticJob exist.
func (s *scenario) events(t *testing.T, tenant, name string, reasons ...string) {
	t.Helper()
	s.waitFor(t, fmt.Sprintf("there are events %v", reasons), func(ctx context.Context) (bool, string) {
		var list v1.EventList
		if err := s.List(ctx, &list, client.InNamespace(s.tenant(tenant))); err != nil {
			return false, err.Error()
		}
		var got []string
		for i := range list.Items {
			if e := &list.Items[i]; e.InvolvedObject.Kind == poolv1alpha1.ElasticJobKind && e.InvolvedObject.Name == name {
				got = append(got, e.Reason)
			}
		}
		missing := slices.ContainsFunc(reasons, func(r string) bool { return !slices.Contains(got, r) })
		return !missing, fmt.Sprint(got)
	})
}

func uids(pods []*v1.Pod) []types.UID {
	var out []types.UID
	for _, p := range pods {
		out = append(out, p.UID)
	}
	slices.Sort(out)
	return out
}

// TestScaleSubresource checks the replicas and the selector of the scale subresource, by which an
// autoscaler counts the pods.
func TestScaleSubresource(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, fmt.Sprintf(onePool, 8), "a")
	s.elasticJob(t, "a", "serve", `
  scaling: {minReplicas: 1, maxReplicas: 1, gpuPerReplica: 1}`)
	s.scaledTo(t, "a", "serve", 1)
	s.scale(t, "a", "serve", 3)
	s.scaledTo(t, "a", "serve", 3)
	scale := &autoscalingv1.Scale{}
	if err := s.SubResource("scale").Get(t.Context(), s.elastic(t, "a", "serve"), scale); err != nil {
		t.Fatal(err)
	}
	selector, err := labels.Parse(scale.Status.Selector)
	if err != nil || selector.Empty() {
		t.Fatalf("selector %q, %v", scale.Status.Selector, err)
	}
	pods := s.podsOf(t, "a", client.MatchingLabelsSelector{Selector: selector})
	if scale.Spec.Replicas != 3 || scale.Status.Replicas != 3 || len(pods) != 3 {
		t.Errorf("scale %+v, %d pods, want 3 of each", scale, len(pods))
	}
}

// TestElasticJobLimit is scenario 29: no job grows beyond the tenant's limit, and the job reports why.
func TestElasticJobLimit(t *testing.T) {
	s := newScenario(t, dgx(5)...)
	s.pool(t, `
  poolType: gpu
  capacity: {total: 40}
  quotas: [{tenant: POOL-a, limit: 32}]`, "a")
	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 4, maxReplicas: 16, gpuPerReplica: 8}`)
	s.scaledTo(t, "a", "train", 4)
	s.condition(t, "a", "train", poolv1alpha1.ConditionScaled, metav1.ConditionFalse, elasticjob.ReasonQuotaLimit)
	s.waitFor(t, "12 replicas wait", func(context.Context) (bool, string) {
		c := s.counts("a")
		return c.waiting == 12 && c.admitted == 1, fmt.Sprintf("%+v", c)
	})
	s.settled(t)
	if got := s.evictions(); len(got) > 0 {
		t.Errorf("evictions: %+v", got)
	}
}

// TestGrowthPriority is scenario 31: spare devices go to the job of the higher priority, in either order
// of creation.
func TestGrowthPriority(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.pool(t, `
  poolType: gpu
  capacity: {total: 10}
  quotas: [{tenant: POOL-a}]`, "a")
	const scaling = `
  priority: %d
  scaling: {minReplicas: 2, maxReplicas: 8, gpuPerReplica: 1}`
	s.elasticJob(t, "a", "low", fmt.Sprintf(scaling, 5))
	s.scaledTo(t, "a", "low", 8)
	s.elasticJob(t, "a", "high", fmt.Sprintf(scaling, 10))
	s.scaledTo(t, "a", "high", 8)
	s.scaledTo(t, "a", "low", 2)
	s.settled(t)
	s.waitBound(t, map[string]int64{"a": 10})
	for job := range s.evicted("a") {
		if !strings.HasPrefix(job, "low-x") {
			t.Errorf("%s was evicted, want only replicas of the lower job beyond its minimum", job)
		}
	}
}

// TestSuspendedJob checks that suspend returns all devices, and that the job continues when it is
// resumed.
func TestSuspendedJob(t *testing.T) {
	t.Parallel()
	for name, preemptible := range map[string]bool{"that may be preempted": true, "that may not": false} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, dgx(1)...)
			s.pool(t, fmt.Sprintf(onePool, 8), "a")
			s.elasticJob(t, "a", "train", fmt.Sprintf(`
  preemptible: %t
  scaling: {minReplicas: 2, maxReplicas: 4, gpuPerReplica: 2}`, preemptible))
			s.scaledTo(t, "a", "train", 4)
			s.change(t, "a", "train", `{"suspend":true}`)
			s.phase(t, "a", "train", poolv1alpha1.JobSuspended)
			s.waitBound(t, map[string]int64{"a": 0})
			s.waitPool(t, "nothing is pinned", func(st *poolv1alpha1.ComputePoolStatus) bool {
				return !slices.ContainsFunc(st.Shares, func(share poolv1alpha1.PoolShare) bool { return share.Pinned > 0 })
			})
			s.change(t, "a", "train", `{"suspend":false}`)
			s.scaledTo(t, "a", "train", 4)
			if got := s.elastic(t, "a", "train").Status.Preemptions; got != 0 {
				t.Errorf("%d preemptions of a job that was suspended", got)
			}
		})
	}
}

// TestMaxRunSeconds checks that maxRunSeconds ends a job as failed, and frees its devices.
func TestMaxRunSeconds(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, fmt.Sprintf(onePool, 8), "a")
	s.elasticJob(t, "a", "train", `
  maxRunSeconds: 8
  scaling: {minReplicas: 2, maxReplicas: 4, gpuPerReplica: 2}`)
	s.phase(t, "a", "train", poolv1alpha1.JobRunning)
	s.phase(t, "a", "train", poolv1alpha1.JobFailed)
	s.condition(t, "a", "train", poolv1alpha1.ConditionFailed, metav1.ConditionTrue, elasticjob.ReasonMaxRunTimeExceeded)
	s.waitBound(t, map[string]int64{"a": 0})
	s.waitFor(t, "no Job is left", func(context.Context) (bool, string) {
		left := s.extras(t, "a", "train")
		w, err := s.workload(t.Context(), "a", names.BaseJob("train"))
		return len(left) == 0 && w == nil && err == nil, fmt.Sprint(left, w, err)
	})
	// A lower bound by the times in the API, which have whole seconds: a slow machine only exceeds it.
	st := s.elastic(t, "a", "train").Status
	if st.CompletionTime == nil || st.StartTime == nil || st.CompletionTime.Sub(st.StartTime.Time) < 7*time.Second {
		t.Errorf("it ran from %v to %v", st.StartTime, st.CompletionTime)
	}
	s.events(t, "a", "train", elasticjob.EventFailed)
	s.recorder.read(s.name, func(a *account) {
		if len(a.activated) > 0 {
			t.Errorf("the Workloads of %v were activated against Kueue", a.activated)
		}
	})
}

// TestStoppedWorkload checks that a job that a user stops stays so until a user starts it again.
func TestStoppedWorkload(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, fmt.Sprintf(onePool, 8), "a")
	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 2, maxReplicas: 2, gpuPerReplica: 2}`)
	s.phase(t, "a", "train", poolv1alpha1.JobRunning)
	setActive := func(to bool) {
		t.Helper()
		w, err := s.workload(t.Context(), "a", names.BaseJob("train"))
		if err == nil {
			err = s.Patch(t.Context(), w, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"active":%t}}`, to)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	setActive(false)
	s.waitBound(t, map[string]int64{"a": 0})
	s.condition(t, "a", "train", poolv1alpha1.ConditionAdmitted, metav1.ConditionFalse, elasticjob.ReasonDeactivated)
	s.settled(t)
	s.waitBound(t, map[string]int64{"a": 0})
	setActive(true)
	s.phase(t, "a", "train", poolv1alpha1.JobRunning)
}

// TestRequirementJobMinimum runs the requirement's own job, in a pool of this scenario: its ranks are in
// its command, so that it stays at minReplicas although the pool has room, and it is protected.
func TestRequirementJobMinimum(t *testing.T) {
	s := newScenario(t, dgx(6)...)
	s.pool(t, fmt.Sprintf(onePool, 48), "a")
	text, err := manifests.FS.ReadFile("examples/pools/llm-training.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.yaml(t, strings.NewReplacer("namespace: ml-workloads", "namespace: POOL-a", "pool: training-pool", "pool: POOL").Replace(string(text)))
	s.scaledTo(t, "a", "llm-training", 4)
	why := s.condition(t, "a", "llm-training", poolv1alpha1.ConditionScaled, metav1.ConditionFalse, poolv1alpha1.ReasonStaticRendezvous)
	if !strings.Contains(why, "container trainer: --nnodes") {
		t.Errorf("the condition says %q", why)
	}
	s.condition(t, "a", "llm-training", poolv1alpha1.ConditionProtectedCapacityGranted, metav1.ConditionTrue, elasticjob.ReasonPinned)
	s.settled(t)
	if got := s.extras(t, "a", "llm-training"); len(got) > 0 {
		t.Errorf("extra Jobs %v", got)
	}
	s.waitBound(t, map[string]int64{"a": 32})
	s.ranked(t, s.pods(t, "a", names.BaseJob("llm-training")))
}

// ranked checks that pods form a gang and have their ranks.
func (s *scenario) ranked(t *testing.T, pods []*v1.Pod) {
	t.Helper()
	seen := map[string]bool{}
	for _, p := range pods {
		env := map[string]v1.EnvVar{}
		for _, e := range p.Spec.Containers[0].Env {
			env[e.Name] = e
		}
		rank := p.Annotations["batch.kubernetes.io/job-completion-index"]
		seen[rank] = true
		ref := env["RANK"].ValueFrom
		if ref == nil || ref.FieldRef == nil || !strings.Contains(ref.FieldRef.FieldPath, "job-completion-index") {
			t.Errorf("pod %s has RANK %+v", p.Name, env["RANK"])
		}
		if got, want := env["MASTER_ADDR"].Value, "llm-training-base-0.llm-training"; got != want {
			t.Errorf("pod %s has MASTER_ADDR %q, want %q", p.Name, got, want)
		}
		if p.Spec.Subdomain != "llm-training" || p.Spec.Hostname != "llm-training-base-"+rank || env["WORLD_SIZE"].Value != "4" {
			t.Errorf("pod %s: host %s, subdomain %s, WORLD_SIZE %s", p.Name, p.Spec.Hostname, p.Spec.Subdomain, env["WORLD_SIZE"].Value)
		}
		if got := p.Annotations["nvtopo.dev/gang"]; got != names.BaseJob("llm-training") {
			t.Errorf("pod %s is of gang %q", p.Name, got)
		}
	}
	if len(seen) != 4 {
		t.Errorf("ranks %v, want 4", seen)
	}
	var service v1.Service
	if s.get(t, &service, s.tenant("a"), "llm-training"); service.Spec.ClusterIP != v1.ClusterIPNone || !service.Spec.PublishNotReadyAddresses {
		t.Errorf("Service: %+v", service.Spec)
	}
}
