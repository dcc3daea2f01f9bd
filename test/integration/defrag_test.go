// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
)

// TestDefragCommands runs the commands that defrag prints, and checks that the promised groups are free
// on the named nodes.
func TestDefragCommands(t *testing.T) {
	e := newTestEnv(t, devcluster.Config{})
	e.install(t)
	e.startScheduler(t, profile{name: "viewed", write: "PreBind"})
	for _, node := range []string{"n1", "n2", "n3"} {
		e.node(t, node, "hgx-a100-8")
	}
	e.checkerAccount(t, "viewer", true)
	config, err := e.ServiceAccountConfig(t.Context(), systemNamespace, "viewer")
	if err != nil {
		t.Fatal(err)
	}
	v := &viewer{e, filepath.Join(t.TempDir(), "kubeconfig")}
	if err := devcluster.WriteKubeconfigOf(config, v.kubeconfig); err != nil {
		t.Fatal(err)
	}
	v.place(t, "one", "n1", 2)
	v.place(t, "two", "n2", 2)
	v.place(t, "three", "n3", 4)
	var advice []clusterview.Advice
	v.read(t, &advice, "defrag", "-n", "8")
	if a := &advice[0]; a.Before != 0 || a.After != 2 || len(a.Moves) != 2 {
		t.Fatalf("advice %+v, want two moves that free two groups", a)
	}
	v.makes(t, &advice[0])
}

// makes runs the printed commands of an advice, and checks that the promised groups are free.
func (v *viewer) makes(t *testing.T, a *clusterview.Advice) {
	t.Helper()
	for _, line := range a.Commands {
		command := strings.Fields(line)
		switch {
		case len(command) == 3 && slices.Equal(command[:2], []string{"kubectl", "cordon"}):
			v.editNode(t, command[2], func(n *v1.Node) { n.Spec.Unschedulable = true })
			testkit.Naps(settleTime)
		case len(command) == 3 && slices.Equal(command[:2], []string{"kubectl", "uncordon"}):
			v.editNode(t, command[2], func(n *v1.Node) { n.Spec.Unschedulable = false })
			testkit.Naps(settleTime)
		case len(command) == 6 && slices.Equal(command[:5], []string{"kubectl", "delete", "pod", "-n", metav1.NamespaceDefault}):
			v.replaced(t, command[5], a)
		case strings.HasPrefix(line, "kubectl wait -n "+metav1.NamespaceDefault+" --for=condition=PodScheduled pod --all --timeout="):
			v.allScheduled(t)
		default:
			t.Fatalf("the test does not know %q", line)
		}
	}
	var top clusterview.View
	v.read(t, &top, "top")
	if got := linked(&top, a.GPUs); got.Free != a.After {
		t.Errorf("after the commands %d groups of %d are free, want %d", got.Free, a.GPUs, a.After)
	}
	for _, f := range a.Freed {
		if s := top.Node(f.Node).Supply; s.Slots[0].Free != f.Groups || s.UsedGPUs > 0 {
			t.Errorf("%s was to be free and has %d GPUs used", f.Node, s.UsedGPUs)
		}
	}
}

// allScheduled waits as kubectl wait does: until each pod that exists now has a node.
func (v *viewer) allScheduled(t *testing.T) {
	t.Helper()
	pods, err := v.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		testkit.Eventually(t, waitLimit, "pod "+pods.Items[i].Name+" is scheduled", func(context.Context) (bool, string) {
			status := &v.get(t, pods.Items[i].Name).Status
			return slices.ContainsFunc(status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue }), fmt.Sprint(status.Conditions)
		})
	}
}

// replaced deletes a pod. Its controller creates another one when the pod begins to terminate, and
// kubelet releases it some time after that.
func (v *viewer) replaced(t *testing.T, name string, a *clusterview.Advice) {
	t.Helper()
	m := &a.Moves[slices.IndexFunc(a.Moves, func(m clusterview.Move) bool { return m.Name == name })]
	pods := v.client.CoreV1().Pods(metav1.NamespaceDefault)
	if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(30))}); err != nil {
		t.Fatal(err)
	}
	if v.get(t, name).DeletionTimestamp == nil {
		t.Fatalf("%s does not end", name)
	}
	again := name + "-again"
	v.create(t, movablePod(again, len(m.FromGPUs)))
	node := v.bound(t, again).Spec.NodeName
	if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	testkit.Naps(settleTime)
	var top clusterview.View
	v.read(t, &top, "top")
	at := top.Node(node)
	i := slices.IndexFunc(at.Pods, func(p clusterview.Pod) bool { return p.Name == again })
	if node != m.To || i < 0 || !slices.Equal(at.Pods[i].GPUs, m.ToGPUs) {
		t.Errorf("%s is on %s, where pods hold %s; it was to get %v of %s", again, node, fmt.Sprintf("%+v", at.Pods), m.ToGPUs, m.To)
	}
}
