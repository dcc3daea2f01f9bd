// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// part labels the nodes that a pod of TestExplain may run on, so that each waits by itself.
const part = "example.com/part"

// waitingCase is a waiting pod with its expected explanation.
type waitingCase struct {
	want     explain.Cause
	wantText string   // in the reason or the evidence
	blockers []string // in the way on the nearest node
}

// TestExplain makes pods wait for every possible cause, and runs the command for each: before, without
// and after a restart of the scheduler.
func TestExplain(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	groups := l.definePodGroups(t)
	s := l.startScheduler(t, profile{name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}})
	l.wantPublished(t)
	cases := map[string]waitingCase{}
	l.explainedNodes(t)

	makeGroup(t, groups, "split", 2, nil)
	makeGroup(t, groups, "short", 3, nil)
	for i := range 2 {
		l.create(t, gpuPod(fmt.Sprint("split-", i), gangProfile, 8).NodeSelector(inPart("split")).Label(schedulingv1alpha1.PodGroupLabel,
			"split").Obj(),
			gpuPod(fmt.Sprint("short-", i), gangProfile, 1).NodeSelector(inPart("short")).Label(schedulingv1alpha1.PodGroupLabel, "short").Obj())
	}
	cases["split-0"] = waitingCase{"Fragmented", "16 nvidia.com/gpu are free on 4 nodes and the gang asks 16", []string{"default/half-0"}}
	cases["short-0"] = waitingCase{"GangIncomplete", "2 of the 3 members", nil}

	waits := func(pod *v1.Pod, c waitingCase) {
		l.create(t, pod)
		cases[pod.Name] = c
	}
	waits(gpuPod("tainted", gangProfile, 2).NodeSelector(inPart("tainted")).Obj(), waitingCase{"Tainted", "team=vision:NoSchedule", nil})
	waits(gpuPod("stale", gangProfile, 2).NodeSelector(inPart("stale")).Obj(), waitingCase{explain.StaleGraph, "stale-0", nil})
	waits(gpuPod("aligned", gangProfile, 6).NodeSelector(inPart("aligned")).Obj(),
		waitingCase{explain.Cause(placement.KubeletRefuses.Name()), "cannot take the pod even when empty", nil})
	waits(gpuPod("spread", gangProfile, 2).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").NodeSelector(inPart("spread")).Obj(),
		waitingCase{explain.Cause(placement.FewInNUMA.Name()), "2 of 8 free", []string{"default/three-0"}})
	waits(gpuPod("unlinked", gangProfile, 2).Annotation(podrequest.MinLinkKey, "NVLINK").NodeSelector(inPart("unlinked")).Obj(),
		waitingCase{explain.NeverFits, "because of nvtopo.dev/min-link", nil})
	waits(gpuPod("cpus", gangProfile, 2).CPU("16").Memory("1Gi").NodeSelector(inPart("cpus")).Obj(),
		waitingCase{explain.FewCPUs, "asks 16, 8 left", []string{"default/hog"}})
	waits(gpuPod("full", gangProfile, 2).NodeSelector(inPart("full")).Obj(), waitingCase{explain.FewGPUs, "0 are free", []string{"default/whole"}})
	waits(gpuPod("elsewhere", "nobody", 1).NodeSelector(inPart("short")).Obj(), waitingCase{explain.OtherScheduler, `"nobody"`, nil})
	gated := gpuPod("gated", gangProfile, 1).NodeSelector(inPart("short")).Obj()
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
	waits(gated, waitingCase{explain.SchedulingGated, "example.com/wait", nil})
	claiming := gpuPod("claiming", gangProfile, 1).NodeSelector(inPart("short")).Obj()
	claiming.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	waits(claiming, waitingCase{explain.VolumeMissing, `"data"`, nil})

	before := l.wantExplained(t, cases)
	shown := transcript.New("explain", "--kubeconfig", l.Kubeconfig())
	profiled := []string{"--profile", gangProfile}
	shown.HideTimes()
	shown.Hide("(?m)^The scheduler said: .*\n", "") // its text changes
	shown.Say("%d pods wait, each for another cause. Who holds what:", len(cases))
	shown.Run(t, "topology", "-g", "node,pod")
	show := func() {
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			shown.RunWith(t, profiled, "explain", name)
		}
		shown.RunWith(t, profiled, "explain", "podgroup/split")
		shown.RunWith(t, profiled, "explain", "podgroup/short")
		shown.Say("A pod that has a place:")
		shown.RunWith(t, profiled, "explain", "whole")
	}
	show()
	l.wantDecision(t, "whole")
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	without := l.wantExplained(t, cases)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	probe := gpuPod("probe", gangProfile, 8).NodeSelector(inPart("probe")).Obj()
	l.create(t, probe)
	l.bound(t, probe.Name)
	l.wantCompared(t, probe.Name, 2)
	l.remove(t, probe.Name)
	after := l.wantExplained(t, cases)
	shown.Say("The scheduler was killed and started again. The same once more:")
	show()
	shown.Compare(t)
	for name := range cases {
		if diff := cmp.Diff(before[name], without[name]); diff != "" {
			t.Errorf("%s is explained otherwise without the scheduler (-with,+without):\n%s", name, diff)
		}
		if diff := cmp.Diff(before[name], after[name]); diff != "" {
			t.Errorf("%s is explained otherwise once the scheduler was started anew (-before,+after):\n%s", name, diff)
		}
	}
	l.wantDecision(t, "whole")
}

// inPart returns a selector of the nodes of a part.
func inPart(name string) map[string]string { return map[string]string{part: name} }

// explainedNodes creates the nodes, and the pods that hold the devices others wait for.
func (e *testEnv) explainedNodes(t *testing.T) {
	t.Helper()
	const cube = "dgx1-v100"
	var specs []devcluster.NodeSpec
	add := func(where, name, machine string, taints ...v1.Taint) devcluster.NodeSpec {
		spec := devcluster.NodeSpec{Name: name, Machine: machine, Labels: map[string]string{part: where}, Taints: taints}
		g, err := spec.Graph()
		if err == nil {
			_, err = e.AddNode(t.Context(), spec)
		}
		if err != nil {
			t.Fatal(err)
		}
		e.graphs[name] = g
		return spec
	}
	for i := range 4 {
		specs = append(specs, add("split", fmt.Sprint("split-", i), cube))
	}
	specs = append(specs, add("short", "short-0", cube), add("aligned", "aligned-0", cube), add("spread", "spread-0", cube),
		add("tainted", "tainted-0", cube, v1.Taint{Key: "team", Value: "vision", Effect: v1.TaintEffectNoSchedule}),
		add("unlinked", "unlinked-0", "l40s-8"), add("cpus", "cpus-0", cube), add("full", "full-0", cube), add("probe", "probe-0", cube), add("probe", "probe-1", cube))
	e.publish(t, devcluster.ExporterOptions{}, specs...)
	stale := add("stale", "stale-0", cube)
	e.publishOnce(t, stale, e.graphs[stale.Name])
	if err := e.client.CoordinationV1().Leases(systemNamespace).Delete(t.Context(), nodelease.ExporterPrefix+stale.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kubelet := map[string]any{"status": map[string]any{"kubelet": map[string]any{"topologyManagerPolicy": "single-numa-node", "scope": "container"}}}
	e.patchTopology(t, "aligned-0", kubelet, "status")

	holds := func(where string, pod *v1.Pod) {
		pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: where}
		e.create(t, pod)
		e.bound(t, pod.Name)
	}
	for i := range 4 {
		holds(fmt.Sprint("split-", i), gpuPod(fmt.Sprint("half-", i), gangProfile, 4).Obj())
	}
	for i := range 2 {
		holds("spread-0", gpuPod(fmt.Sprint("three-", i), gangProfile, 3).Obj())
	}
	holds("cpus-0", gpuPod("hog", gangProfile, 1).CPU("72").Memory("1Gi").Obj())
	holds("full-0", gpuPod("whole", gangProfile, 8).Obj())
}

// explained returns the command's explanation of a pod.
func (l *testEnv) explained(ctx context.Context, t *testing.T, name string) (*explain.Explanation, error) {
	t.Helper()
	cmd := cli.New("nvtopo")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"explain", "pod/" + name, "-o", "json", "-n", metav1.NamespaceDefault, "--profile", gangProfile, "--kubeconfig", l.Kubeconfig()})
	if err := cmd.ExecuteContext(ctx); err != nil {
		return nil, err
	}
	e := &explain.Explanation{}
	return e, json.Unmarshal(out.Bytes(), e)
}

// wantExplained waits until each pod is explained as expected, and returns the explanations without the
// scheduler's own message, which changes.
func (l *testEnv) wantExplained(t *testing.T, cases map[string]waitingCase) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, tc := range cases {
		testkit.Eventually(t, waitLimit, "pod "+name+" is explained by "+string(tc.want), func(ctx context.Context) (bool, string) {
			e, err := l.explained(ctx, t, name)
			if err != nil {
				return false, err.Error()
			}
			var blockers []string
			if len(e.Candidates) > 0 {
				for _, b := range e.Candidates[0].Blockers {
					blockers = append(blockers, b.Pod)
				}
			}
			said := strings.Join(append([]string{e.Reason}, e.Evidence...), "; ")
			e.Scheduler = ""
			text, err := yaml.Marshal(e)
			if err != nil {
				return false, err.Error()
			}
			out[name] = string(text)
			return e.Cause == tc.want && strings.Contains(said, tc.wantText) && slices.Equal(blockers, tc.blockers) && e.Next != "",
				fmt.Sprintf("%s: %s; in the way %q; %+v", e.Cause, said, blockers, e)
		})
	}
	return out
}

// wantDecision checks the explanation of a placed pod: the record is on the pod, matches its choice, and
// is short.
func (l *testEnv) wantDecision(t *testing.T, name string) {
	t.Helper()
	e, err := l.explained(t.Context(), t, name)
	if err != nil {
		t.Fatal(err)
	}
	text := l.get(t, name).Annotations[allocation.DecisionKey]
	switch {
	case e.State != explain.Bound || e.Choice == nil || e.Choice.Set == nil || e.Choice.Best == nil:
		t.Errorf("pod %s is explained as %+v", name, e)
	case e.Choice.Decision == nil || e.Choice.Decision.Node != e.Choice.Node || len(e.Choice.Decision.Candidates) == 0:
		t.Errorf("pod %s has the record %s, which is read as %+v", name, text, e.Choice.Decision)
	case len(text) > allocation.MaxDecisionBytes:
		t.Errorf("the record of pod %s has %d bytes: %s", name, len(text), text)
	}
}

// wantCompared checks that the record of a pod has a number of nodes, each with its terms.
func (e *testEnv) wantCompared(t *testing.T, name string, nodes int) {
	t.Helper()
	text := e.get(t, name).Annotations[allocation.DecisionKey]
	d, err := allocation.ParseDecision(text)
	if err != nil {
		t.Fatal(err)
	}
	if d.Scored != nodes || len(d.Candidates) != nodes {
		t.Errorf("the record has %d of %d nodes, want %d of as many: %s", len(d.Candidates), d.Scored, nodes, text)
	}
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Terms == nil || c.Score == 0 || c.Ring == 0 {
			t.Errorf("node %s has no terms: %s", c.Node, text)
		}
	}
}
