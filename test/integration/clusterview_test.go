// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// viewer runs the commands that show a cluster with an account that has only the shipped role.
type viewer struct {
	*testEnv
	kubeconfig string
}

func (v *viewer) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := cli.New("nvtopo")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append(args, "--kubeconfig", v.kubeconfig))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String()
}

func (v *viewer) read(t *testing.T, to any, args ...string) {
	t.Helper()
	if err := json.Unmarshal([]byte(v.run(t, append(args, "-o", "json")...)), to); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// place makes the real scheduler put a pod on a node, the only open one.
func (v *viewer) place(t *testing.T, name, node string, gpus int) {
	t.Helper()
	nodes, err := v.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		v.editNode(t, nodes.Items[i].Name, func(n *v1.Node) { n.Spec.Unschedulable = n.Name != node })
	}
	for { // until the scheduler has received that the others are closed
		v.create(t, movablePod(name, gpus))
		if v.bound(t, name).Spec.NodeName == node {
			break
		}
		v.remove(t, name)
	}
	for i := range nodes.Items {
		v.editNode(t, nodes.Items[i].Name, func(n *v1.Node) { n.Spec.Unschedulable = false })
	}
}

// movablePod returns a pod that a controller would recreate.
func movablePod(name string, gpus int) *v1.Pod {
	p := gpuPod(name, "viewed", gpus).Label("app", name).Obj()
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: "of-no-object", Controller: new(true)}}
	return p
}

// TestClusterViews compares the commands' output with the scheduler's annotations, makes an advised move,
// and checks its gain.
func TestClusterViews(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.startScheduler(t, profile{name: "viewed", write: "PreBind"})
	l.node(t, "n1", "hgx-a100-8")
	l.node(t, "n2", "hgx-a100-8")
	l.checkerAccount(t, "viewer", true)
	config, err := l.ServiceAccountConfig(t.Context(), systemNamespace, "viewer")
	if err != nil {
		t.Fatal(err)
	}
	v := &viewer{l, filepath.Join(t.TempDir(), "kubeconfig")}
	if err := devcluster.WriteKubeconfigOf(config, v.kubeconfig); err != nil {
		t.Fatal(err)
	}
	v.place(t, "large", "n1", 4)
	v.place(t, "small", "n2", 2)

	v.showMachine(t, "n1")
	shown := v.showViews(t)

	var top clusterview.View
	v.read(t, &top, "top")
	v.showsTheAllocations(t, &top, "large", "small")
	if got := linked(&top, 8); got != (groupsOf8{Free: 0, Ideal: 1, Capacity: 2}) {
		t.Errorf("groups of 8: %+v", got)
	}
	if text := v.run(t, "topology", "-g", "node,pod"); !strings.Contains(text, "default/large") || !strings.Contains(text, "└─ n2") {
		t.Errorf("the tree:\n%s", text)
	}
	if text := v.run(t, "topology", "n2"); !strings.Contains(text, "default/small") || !strings.Contains(text, "GPU7") {
		t.Errorf("the node:\n%s", text)
	}

	var advice []clusterview.Advice
	v.read(t, &advice, "defrag", "-n", "8")
	if len(advice) != 1 || advice[0].After != 1 || len(advice[0].Moves) != 1 || !advice[0].Proven {
		t.Fatalf("advice %+v, want one move that is proven", advice)
	}
	v.keepsBudgets(t, advice[0].Moves[0].Name)
	v.makes(t, &advice[0])
	shown.Say("The commands are run. Its controller makes the pod again when it begins to end.")
	shown.Run(t, "defrag", "-n", "8")
	shown.Run(t, "top")
	shown.Compare(t)
}

// showViews returns the transcript of the commands that show a cluster or one of its nodes.
func (v *viewer) showViews(t *testing.T) *transcript.Session {
	t.Helper()
	s := transcript.New("views", "--kubeconfig", v.kubeconfig)
	s.Say("Two nodes, and two pods that the scheduler placed: large on n1, small on n2.")
	s.Run(t, "topology")
	s.Run(t, "topology", "-g", "node,pod")
	s.Run(t, "topology", "n2")
	s.Run(t, "top")
	s.Run(t, "top", "-o", "wide")
	s.Hide("(?m)  [0-9]+s$", "  1s") // how long each waited
	s.Run(t, "get", "pods", "-A")
	s.Run(t, "check")
	s.Run(t, "defrag", "-n", "8")
	return s
}

// showMachine writes the transcript of the commands about one machine, which here is a node.
func (e *testEnv) showMachine(t *testing.T, node string) {
	t.Helper()
	s := transcript.New("machine")
	s.HideTimes()
	s.Say("Commands about one machine, read from the NodeGPUTopology of node %s. What the node's\npods hold is not offered.", node)
	for _, line := range []string{
		"matrix", "matrix --show bandwidth", "pick -n 4", "pick -n 2 --free 1,4,5 -o json", "groups -g 2", "estimate --gpus 0-3 --size 1GB",
		"affinity --gpus 0-3", "generate kubelet-config", "generate docker -n 2 --cpus 16",
	} {
		s.RunWith(t, []string{"--kubeconfig", e.Kubeconfig()}, append(strings.Fields(line), "--node", node)...)
	}
	s.Say("These read nothing.")
	for _, line := range []string{"machines", "generate pod --gpus 4", "generate scheduler-profile --workload inference"} {
		s.Run(t, strings.Fields(line)...)
	}
	s.Compare(t)
	s = transcript.New("export")
	s.HideTimes()
	s.Hide("(bootID|nodeUID): .*", "$1: 00000000-0000-0000-0000-000000000000")
	s.RunWith(t, []string{"--kubeconfig", e.Kubeconfig()}, "export", "--node", node)
	s.Compare(t)
}

// groupsOf8 are the linked groups of 8 of a cluster.
type groupsOf8 struct{ Free, Ideal, Capacity int }

func linked(v *clusterview.View, size int) (out groupsOf8) {
	for _, s := range v.Supply.Slots {
		for _, l := range s.Linked {
			if s.GPUs == size {
				out = groupsOf8{out.Free + l.Free, out.Ideal + l.Ideal, out.Capacity + l.Capacity}
			}
		}
	}
	return out
}

// showsTheAllocations compares the pods of a view with their annotations.
func (v *viewer) showsTheAllocations(t *testing.T, view *clusterview.View, names ...string) {
	t.Helper()
	for _, name := range names {
		pod := v.get(t, name)
		a, err := allocation.Of(pod, pod.Spec.NodeName)
		if err != nil {
			t.Fatal(err)
		}
		node := view.Node(pod.Spec.NodeName)
		var got []string
		for i := range node.GPUs {
			if slices.Contains(node.GPUs[i].Pods, "default/"+name) {
				got = append(got, node.GPUs[i].UUID)
			}
		}
		want := slices.Sorted(slices.Values(a.GPUs(string(gpuResource))))
		if slices.Sort(got); !slices.Equal(got, want) || node.Supply.UsedGPUs != len(want) {
			t.Errorf("pod %s holds %v of %d used, and its annotation says %v", name, got, node.Supply.UsedGPUs, want)
		}
	}
}

// keepsBudgets checks that a pod is not moved with a budget that allows no eviction, nor with its
// annotation.
func (v *viewer) keepsBudgets(t *testing.T, mover string) {
	t.Helper()
	budgets := v.client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
	if _, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": mover}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	v.stays(t, mover, "PodDisruptionBudget")
	if err := budgets.Delete(t.Context(), "guard", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{`"false"`, "null"} {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, podrequest.MovableKey, value)
		if _, err := v.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), mover, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if value != "null" {
			v.stays(t, mover, podrequest.MovableKey)
		}
	}
}

// stays fails if a pod is to be moved, or does not have this reason to stay.
func (v *viewer) stays(t *testing.T, name, reason string) {
	t.Helper()
	var advice []clusterview.Advice
	v.read(t, &advice, "defrag", "-n", "8")
	if slices.ContainsFunc(advice[0].Moves, func(m clusterview.Move) bool { return m.Name == name }) {
		t.Errorf("%s is to be moved in spite of its %s", name, reason)
	}
	for why := range advice[0].Unmovable {
		if strings.Contains(why, reason) {
			return
		}
	}
	t.Errorf("must stay: %v, and nobody for %s", advice[0].Unmovable, reason)
}
