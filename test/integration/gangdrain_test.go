// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestNodeKeeping checks that nodes are kept for a waiting gang: a gang waits for a rack of which half is
// free, beside pods that fit on it.
func TestNodeKeeping(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	s := scenario{free: freeRacks{{{0, 4}, {0, 0}}}}
	l.makeRacks(t, 0, &s)
	l.startScheduler(t, profile{
		name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin},
		args: map[string]string{gangPlugin: "drainAfter: 1s"},
	})
	// If only pods of the gang's own namespace are in the way, no node is kept.
	for node, gpus := range map[string]int{"s0-node-0-0": 8, "s0-node-0-1": 4, "s0-node-1-0": 8, "s0-node-1-1": 8} {
		l.createIn(t, "others", gpuPod("taker-"+node, gangProfile, gpus).NodeSelector(host(node)).Obj())
	}
	for _, node := range []string{"s0-node-0-0", "s0-node-0-1", "s0-node-1-0", "s0-node-1-1"} {
		l.seenIn(t, "others", "taker-"+node, "is bound", func(pod *v1.Pod) bool { return pod.Spec.NodeName == node })
	}
	required := notes{gangrequest.RequiredKey: "rack"}

	gone := gangPods(0, "gone", 2, 8, required)
	l.create(t, gone...)
	l.wantGangRefused(t, gone, "drains rack-0 since ")
	// It is on the first member whose own cycle has not reported it.
	testkit.Eventually(t, waitLimit, "an event says that a rack is drained", func(ctx context.Context) (bool, string) {
		var said []string
		for _, pod := range gone {
			notes, err := l.events(ctx, l.get(t, pod.Name), "GangWaiting")
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, notes...)
		}
		return strings.Contains(strings.Join(said, "\n"), "drains rack-0 since "), fmt.Sprint(said)
	})
	younger := gpuPod("younger", gangProfile, 4).Obj()
	l.create(t, younger)
	if why, want := l.refused(t, "younger"), "nvidia.com/gpu of the node is kept for gang default/gone"; !strings.Contains(why, want) {
		t.Errorf("the younger pod says %q, want %q", why, want)
	}
	l.createIn(t, "others", gpuPod("stranger", gangProfile, 4).Obj())
	l.seenIn(t, "others", "stranger", "is refused without the gang's name", func(pod *v1.Pod) bool {
		return strings.Contains(refusal(pod), "kept for a gang of another namespace") && !strings.Contains(refusal(pod), "gone")
	})
	l.removeIn(t, "others", "stranger")
	plain := gpuPod("plain", gangProfile, 0).NodeSelector(host("s0-node-0-1")).Obj()
	plain.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
	l.createIn(t, "others", plain)
	l.seenIn(t, "others", "plain", "is bound, since it asks for no GPU", func(pod *v1.Pod) bool { return pod.Spec.NodeName != "" })
	for _, pod := range gone {
		l.remove(t, pod.Name)
	}
	if node := l.bound(t, "younger").Spec.NodeName; node != "s0-node-0-1" {
		t.Errorf("the younger pod is on %s, want the node that is open again", node)
	}

	waits := gangPods(0, "waits", 2, 8, required)
	l.create(t, waits...)
	l.wantGangRefused(t, waits, "drains rack-")
	var passing []*v1.Pod
	for i := range 8 {
		passing = append(passing, gpuPod(fmt.Sprint("passing-", i), gangProfile, 1).Obj())
	}
	l.create(t, passing...)
	rack := "rack-0"
	if strings.Contains(l.refused(t, waits[0].Name), "rack-1") {
		rack = "rack-1"
	}
	for _, node := range []string{"0", "1"} { // one after the other, so that passing pods have a chance
		l.removeIn(t, "others", "taker-s0-node-"+strings.TrimPrefix(rack, "rack-")+"-"+node)
	}
	if rack == "rack-0" {
		l.remove(t, "younger")
	}
	for _, pod := range waits {
		if node := l.bound(t, pod.Name).Spec.NodeName; !strings.Contains(node, "-node-"+strings.TrimPrefix(rack, "rack-")) {
			t.Errorf("%s is on %s, want the rack that was drained", pod.Name, node)
		}
	}
}

// createIn creates a pod in a namespace, which is created if needed.
func (e *testEnv) createIn(t *testing.T, namespace string, pod *v1.Pod) {
	t.Helper()
	object := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := e.client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pod.Namespace = namespace
	if _, err := e.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// removeIn deletes a pod of a namespace.
func (e *testEnv) removeIn(t *testing.T, namespace, name string) {
	t.Helper()
	if err := e.client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Naps(settleTime)
}

// seenIn waits until a pod of a namespace fulfils is.
func (e *testEnv) seenIn(t *testing.T, namespace, name, what string, is func(*v1.Pod) bool) {
	t.Helper()
	testkit.Eventually(t, waitLimit, "pod "+name+" "+what, func(ctx context.Context) (bool, string) {
		pod, err := e.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return is(pod), fmt.Sprintf("node %q, conditions %+v", pod.Spec.NodeName, pod.Status.Conditions)
	})
}
