// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
)

// madeBy says that an object makes the pod.
func madeBy(p *v1.Pod, kind, name string) *v1.Pod {
	p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: "uid", Controller: new(true)}}
	return p
}

// of is a pod of a Deployment's ReplicaSet.
func of(name, deployment, hash string, gpus int) *v1.Pod {
	return madeBy(pod(name, gpus).Label("pod-template-hash", hash).Obj(), "ReplicaSet", deployment+"-"+hash)
}

// TestOwner: an object is explained by the first of its pods that waits, whatever makes them, and by no other's.
func TestOwner(t *testing.T) {
	for name, tc := range map[string]struct {
		kind string
		pods func() []*v1.Pod // the first of them by name is the object's
		want string           // the pod that stands for web; empty: it is not found
	}{
		"a Deployment, over its ReplicaSet":       {kind: "Deployment", pods: func() []*v1.Pod { return []*v1.Pod{of("p", "web", "5d4f8c7b9d", 9)} }, want: "p"},
		"a Deployment whose name begins the same": {kind: "Deployment", pods: func() []*v1.Pod { return []*v1.Pod{of("p", "web-canary", "5d4f8c7b9d", 9)} }},
		"a ReplicaSet that no Deployment made":    {kind: "Deployment", pods: func() []*v1.Pod { return []*v1.Pod{madeBy(pod("p", 9).Obj(), "ReplicaSet", "web-1")} }},
		"a ReplicaSet of that name":               {kind: "Deployment", pods: func() []*v1.Pod { return []*v1.Pod{madeBy(pod("p", 9).Obj(), "ReplicaSet", "web")} }},
		"that ReplicaSet itself":                  {kind: "ReplicaSet", pods: func() []*v1.Pod { return []*v1.Pod{madeBy(pod("p", 9).Obj(), "ReplicaSet", "web")} }, want: "p"},
		"a StatefulSet":                           {kind: "StatefulSet", pods: func() []*v1.Pod { return []*v1.Pod{madeBy(pod("web-0", 9).Obj(), "StatefulSet", "web")} }, want: "web-0"},
		"a Deployment is no StatefulSet":          {kind: "StatefulSet", pods: func() []*v1.Pod { return []*v1.Pod{of("p", "web", "5d4f8c7b9d", 9)} }},
		"a Job that may not be read":              {kind: "Job", pods: func() []*v1.Pod { return []*v1.Pod{madeBy(pod("p", 9).Obj(), "Job", "web")} }, want: "p"},
		"a JobSet, over its Jobs": {kind: "JobSet", pods: func() []*v1.Pod {
			return []*v1.Pod{madeBy(pod("p", 9).Label(jobSetName, "web").Obj(), "Job", "web-workers-0")}
		}, want: "p"},
		"a LeaderWorkerSet, over its StatefulSets": {kind: "LeaderWorkerSet", pods: func() []*v1.Pod {
			return []*v1.Pod{madeBy(pod("p", 9).Label(lwsName, "web").Obj(), "StatefulSet", "web")}
		}, want: "p"},
		"the first that waits, before those it has": {kind: "Deployment", pods: func() []*v1.Pod {
			running := of("a", "web", "5d4f8c7b9d", 1)
			running.Spec.NodeName = "n0"
			done := of("b", "web", "5d4f8c7b9d", 1)
			done.Status.Phase = v1.PodFailed
			return []*v1.Pod{done, running, of("d", "web", "5d4f8c7b9d", 9), of("c", "web", "5d4f8c7b9d", 9)}
		}, want: "c"},
		"one that has a node, before those that ended": {kind: "Deployment", pods: func() []*v1.Pod {
			running := of("b", "web", "5d4f8c7b9d", 1)
			running.Spec.NodeName = "n0"
			done := of("a", "web", "5d4f8c7b9d", 1)
			done.Status.Phase = v1.PodFailed
			return []*v1.Pod{done, running}
		}, want: "b"},
		"pods of another namespace": {kind: "Deployment", pods: func() []*v1.Pod {
			p := of("p", "web", "5d4f8c7b9d", 9)
			p.Namespace = "others"
			return []*v1.Pod{p}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			for _, p := range tc.pods() {
				w.waits(p)
			}
			e, err := Owner(w.World, tc.kind, "team", "web")
			switch {
			case tc.want == "" && !errors.Is(err, ErrNotFound):
				t.Errorf("got %+v and %v, want ErrNotFound", e, err)
			case tc.want == "":
			case err != nil:
				t.Error(err)
			case e.Kind != tc.kind || e.Name != "web" || len(e.Evidence) == 0 || !strings.HasPrefix(e.Evidence[0], "pod "+tc.want+" stands for the "):
				t.Errorf("%s %s, evidence %q, want pod %s to stand for it", e.Kind, e.Name, e.Evidence, tc.want)
			}
		})
	}
}

// TestAlikePods: the pods of an object are counted by how far they have come and by what they wait for.
func TestAlikePods(t *testing.T) {
	const hash = "5d4f8c7b9d"
	w := newTestEnv()
	w.node(t, "n0", cube, nil)
	w.holds(t, "other", "n0", 0, 1, 2, 3, 4, 5)
	for i := range 5 {
		w.waits(of(fmt.Sprint("web-", i), "web", hash, 4))
	}
	w.waits(of("web-5", "web", hash, 9)) // of another template: no node has nine
	gated := of("web-6", "web", hash, 4)
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/gate"}}
	w.waits(gated)
	w.holds(t, "web-7", "n0", 6, 7)
	w.pod("web-7").OwnerReferences, w.pod("web-7").Labels = w.pod("web-0").OwnerReferences, w.pod("web-0").Labels
	done := of("web-8", "web", hash, 4)
	done.Status.Phase = v1.PodSucceeded
	w.waits(done)
	e, err := Owner(w.World, "Deployment", "team", "web")
	if err != nil {
		t.Fatal(err)
	}
	want := []Alike{
		{State: Pending, Cause: FewGPUs, Pods: 5, Named: []string{"web-0", "web-1", "web-2"}},
		{State: Pending, Cause: NeverFits, Pods: 1, Named: []string{"web-5"}},
		{State: Pending, Cause: SchedulingGated, Pods: 1, Named: []string{"web-6"}},
		{State: Bound, Pods: 1, Named: []string{"web-7"}},
		{State: Ended, Pods: 1, Named: []string{"web-8"}},
	}
	if diff := cmp.Diff(want, e.Pods); diff != "" || e.Cause != FewGPUs {
		t.Errorf("cause %s, want FewGPUs (-want,+got):\n%s", e.Cause, diff)
	}
}

// TestAlikePodsExplained: the cause that a pod is counted by is that of its own explanation, and of pods that all ask
// for something else only some are explained.
func TestAlikePodsExplained(t *testing.T) {
	w := newTestEnv()
	w.node(t, "n0", cube, nil)
	w.holds(t, "other", "n0", 0, 1, 2, 3)
	for i := range 3 * maxExplained {
		p := of(fmt.Sprintf("web-%02d", i), "web", "5d4f8c7b9d", 1+i%9)
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = *resource.NewQuantity(int64(1+i), resource.DecimalSI)
		w.waits(p)
	}
	e, err := Owner(w.World, "Deployment", "team", "web")
	if err != nil {
		t.Fatal(err)
	}
	total, unknown := 0, 0
	for _, a := range e.Pods {
		total += a.Pods
		if a.Cause == "" {
			unknown += a.Pods
			continue
		}
		for _, name := range a.Named {
			alone, err := Pod(w.World, "team", name)
			if err != nil || alone.Cause != a.Cause {
				t.Errorf("pod %s is counted by %s, and explained by %s (%v)", name, a.Cause, alone.Cause, err)
			}
		}
	}
	if total != 3*maxExplained || unknown != 2*maxExplained {
		t.Errorf("%d pods are counted, %d of them by no cause, want %d and %d", total, unknown, 3*maxExplained, 2*maxExplained)
	}
}

// TestOwnerWithoutPods: an object that has no pods since Kueue holds it back is explained by its Workload.
func TestOwnerWithoutPods(t *testing.T) {
	w := newTestEnv()
	w.node(t, "n0", cube, nil).quota(t)
	w.Workloads = append(w.Workloads, kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "jobset-train", UID: "w", OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: "train", UID: "js"}}},
		Spec:       kueue.WorkloadSpec{QueueName: "local"},
	})
	e, err := Owner(w.World, "JobSet", "team", "train")
	if err != nil || e.Cause != NoQuota || !slices.ContainsFunc(e.Evidence, func(s string) bool { return strings.Contains(s, "Workload team/jobset-train") }) {
		t.Errorf("%+v, %v, want NoQuota by the Workload", e, err)
	}
	if _, err := Owner(w.World, "Deployment", "team", "train"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a Deployment of that name: %v, want ErrNotFound", err)
	}
}

// TestElasticJob: an ElasticJob is explained by its conditions, and by its Job where it has one and may run.
func TestElasticJob(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	waits := condition(v1alpha1.ConditionAdmitted, metav1.ConditionFalse, "PoolNotFound", "there is no ComputePool shared")
	job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "train-base", UID: "uid",
		OwnerReferences: []metav1.OwnerReference{{Kind: "ElasticJob", Name: "train", UID: "ej", Controller: new(true)}},
	}}
	foreign := *job.DeepCopy()
	foreign.OwnerReferences = nil
	for name, tc := range map[string]struct {
		job          *batchv1.Job
		phase        v1alpha1.JobPhase
		conditions   []metav1.Condition
		wantState    State
		want         Cause
		wantReason   string
		wantEvidence []string
	}{
		"its Job has a pod that waits": {
			job: &job, phase: v1alpha1.JobRunning, conditions: []metav1.Condition{condition(v1alpha1.ConditionScaled, metav1.ConditionFalse, "QuotaLimit", "no quota for more")},
			wantState: Pending, want: NeverFits, wantReason: "9 nvidia.com/gpu", wantEvidence: []string{"Scaled is False, QuotaLimit: no quota for more", "pod train-base-0 stands for the job"},
		},
		"no Job, and the pool is not there": {
			phase: v1alpha1.JobQueued, conditions: []metav1.Condition{waits}, wantState: Pending, want: Suspended, wantReason: "there is no ComputePool shared",
			wantEvidence: []string{"Admitted is False, PoolNotFound: there is no ComputePool shared"},
		},
		"a Job of its Job's name that is another's": {
			job: &foreign, phase: v1alpha1.JobQueued, conditions: []metav1.Condition{waits}, wantState: Pending, want: Suspended, wantReason: "there is no ComputePool shared",
		},
		"a template that is none": {
			phase: v1alpha1.JobQueued, conditions: []metav1.Condition{waits, condition(v1alpha1.ConditionTemplateValid, metav1.ConditionFalse, "Invalid", "spec.containers: missing")},
			wantState: Pending, want: Unreadable, wantReason: "spec.containers: missing",
		},
		"a person suspended it":             {job: &job, phase: v1alpha1.JobSuspended, wantState: Pending, want: Suspended, wantReason: "suspended"},
		"it has ended":                      {job: &job, phase: v1alpha1.JobFailed, wantState: Ended},
		"the controller has not looked yet": {wantState: Pending, want: Suspended, wantReason: "has not said why"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			w.ElasticJobs = []clusterobjects.ElasticJob{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "ej"}, Status: v1alpha1.ElasticJobStatus{Phase: tc.phase, Conditions: tc.conditions},
			}}
			if tc.job != nil {
				w.Jobs = []batchv1.Job{*tc.job}
				w.waits(madeBy(pod("train-base-0", 9).Obj(), "Job", "train-base"))
			}
			e, err := Owner(w.World, "ElasticJob", "team", "train")
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind != "ElasticJob" || e.Name != "train" || e.State != tc.wantState || e.Cause != tc.want || !strings.Contains(e.Reason, tc.wantReason) || (e.Next == "") != (tc.want == "") {
				t.Errorf("%s %s: %s, %s: %s; next %q, want %s, %s: %s and a next step", e.Kind, e.Name, e.State, e.Cause, e.Reason, e.Next, tc.wantState, tc.want, tc.wantReason)
			}
			if got := e.Evidence[:min(len(tc.wantEvidence), len(e.Evidence))]; !slices.Equal(got, tc.wantEvidence) {
				t.Errorf("evidence %q, want first %q", e.Evidence, tc.wantEvidence)
			}
		})
	}
	if _, err := Owner(newTestEnv().World, "ElasticJob", "team", "train"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an ElasticJob that is not there: %v, want ErrNotFound", err)
	}
}
