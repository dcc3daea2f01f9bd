// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// settled waits until the scheduler has seen all earlier changes: pod events come in order, and it wakes
// the one member of a gang.
func (e *testEnv) settled() {
	e.t.Helper()
	e.known(e.create(member("marker", 1, 0, 1).Obj()))
}

// label changes a label of a pod.
func (e *testEnv) label(pod *v1.Pod) *v1.Pod {
	e.t.Helper()
	pod = pod.DeepCopy()
	pod.Labels = map[string]string{"example.com/change": "later"}
	pod, err := e.client.CoreV1().Pods(pod.Namespace).Update(e.t.Context(), pod, metav1.UpdateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return pod
}

// TestSiblingChange: a sibling may change between the plan and its Reserve.
func TestSiblingChange(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3)
	pods := r.gang("g", 3, 8, nil)
	r.known(pods[0])
	first := r.cycle(pods[0])
	if !first.status.IsWait() {
		t.Fatalf("pod %s: %v, want to wait", pods[0].Name, first.status)
	}
	held := r.held()
	for i, pod := range pods {
		pods[i] = r.label(pod) // one that waits, and two whose cycles are to come
	}
	r.settled()
	if diff := cmp.Diff(held, r.held()); diff != "" {
		t.Fatalf("held after the change (-want,+got)\n%s", diff)
	}
	for _, pod := range pods[1:] {
		if c := r.cycle(pod); !c.status.IsWait() {
			t.Errorf("pod %s: %v, want to wait", pod.Name, c.status)
		}
	}
	for _, pod := range pods {
		if status := r.fw.WaitOnPermit(t.Context(), pod); !status.IsSuccess() {
			t.Errorf("pod %s is not let through: %v", pod.Name, status)
		}
	}
}

// TestSiblingReplacement: a sibling may be replaced between the plan and its Reserve.
func TestSiblingReplacement(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3)
	pods := r.gang("g", 3, 8, nil)
	r.known(pods[0])
	first := r.cycle(pods[0])
	if !first.status.IsWait() {
		t.Fatalf("pod %s: %v, want to wait", pods[0].Name, first.status)
	}
	if err := r.client.CoreV1().Pods("default").Delete(t.Context(), pods[1].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	anew := pods[1].DeepCopy()
	anew.UID = types.UID(anew.Name + "-anew")
	if _, err := r.client.CoreV1().Pods("default").Create(t.Context(), anew, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	old := pods[1]
	pods[1] = anew
	if status := r.fw.WaitOnPermit(t.Context(), pods[0]); status.IsSuccess() {
		t.Fatal("a member is let through without the others")
	}
	r.fw.RunReservePluginsUnreserve(t.Context(), first.state, pods[0], first.node)
	if c := r.cycle(old); c.status.IsSuccess() || c.status.IsWait() {
		t.Errorf("the pod that is gone goes on: %v", c.status)
	}
	testkit.Soon(t, "the gang is planned anew", func() bool { return r.cycle(pods[0]).status.IsWait() })
	for _, pod := range pods[1:] {
		if c := r.cycle(pod); !c.status.IsWait() {
			t.Errorf("pod %s: %v, want to wait", pod.Name, c.status)
		}
	}
	for _, pod := range pods {
		if status := r.fw.WaitOnPermit(t.Context(), pod); !status.IsSuccess() {
			t.Errorf("pod %s is not let through: %v", pod.Name, status)
		}
	}
}

// TestNominationOfReplaced: the end of an attempt removes the nomination of a pod that is gone. The queue,
// which may see the end of a pod before it is nominated, does not.
func TestNominationOfReplaced(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3)
	pods := r.gang("g", 3, 8, nil)
	r.known(pods[0])
	if first := r.cycle(pods[0]); !first.status.IsWait() {
		t.Fatalf("pod %s: %v, want to wait", pods[0].Name, first.status)
	}
	if diff := cmp.Diff([]string{"g-1", "g-2"}, r.nominated()); diff != "" {
		t.Fatalf("nominated while the first waits (-want,+got)\n%s", diff)
	}
	if err := r.client.CoreV1().Pods("default").Delete(t.Context(), pods[1].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	anew := pods[1].DeepCopy()
	anew.UID = types.UID(anew.Name + "-anew")
	r.create(anew)
	r.settled()
	if diff := cmp.Diff([]string(nil), r.nominated()); diff != "" {
		t.Errorf("nominated after the attempt has ended (-want,+got)\n%s", diff)
	}
}

// nominated are the pods nominated for some node.
func (e *testEnv) nominated() (names []string) {
	for _, node := range e.nodes {
		for _, pi := range e.fw.NominatedPodsForNode(node.Name) {
			names = append(names, pi.GetPod().Name)
		}
	}
	slices.Sort(names)
	return names
}

// The pods of one gang are gone, and no pod in no gang comes: only the other gang's own cycle can find
// that their GPUs are free.
func TestGoneGangPlaces(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3)
	pods := r.gang("first", 3, 8, nil)
	r.known(pods[0])
	for _, pod := range pods {
		if c := r.cycle(pod); !c.status.IsWait() {
			t.Fatalf("pod %s: %v, want to wait", pod.Name, c.status)
		}
	}
	for _, pod := range pods {
		if status := r.fw.WaitOnPermit(t.Context(), pod); !status.IsSuccess() {
			t.Fatalf("pod %s is not let through: %v", pod.Name, status)
		}
		if err := r.client.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	next := r.gang("second", 3, 8, nil)
	r.known(next[0])
	testkit.Soon(t, "the second gang is planned", func() bool { return r.cycle(next[0]).status.IsWait() })
}

// TestMembersAmongOthers: after a change without an event the waiting pods are tried, but not members of
// gangs: a gang is informed of the same changes itself. 2,000 members delayed a pod without GPUs by half a
// minute.
func TestMembersAmongOthers(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 1)
	waits := r.create(member("waits", 2, 0, 8).Obj()) // for a member that does not come
	single := r.create(gpuPod("single", 0).Obj())
	r.settled()
	r.state.PreSelector.Keep(map[string][]*candidates.Kept{"node-0-0": {{Resource: gpuResource, Count: 8}}})
	r.state.PreSelector.Keep(nil) // the node is open again
	testkit.Soon(t, "the pod without GPUs has its turn", func() bool { return r.awake.has(single.Name) })
	if r.awake.has(waits.Name) {
		t.Error("a member whose gang cannot begin has a turn as well")
	}
}
