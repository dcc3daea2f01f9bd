// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
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
