// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestNextCommand: where another value of an annotation would do, the next step has the command that sets
// it, or the object whose template has it.
func TestNextCommand(t *testing.T) {
	const (
		never  = "set nvtopo.dev/min-bandwidth to 50GB/s"
		room   = ", with which there is room when no other pod runs, or add nodes that have more"
		linked = "ask for a lesser nvtopo.dev/min-link, or wait for the pods that are named"
		less   = "; with nvtopo.dev/min-link SYS there is room now"
	)
	greedy := func(name string) *testobj.PodWrapper {
		return pod(name, 2).Annotation(podrequest.MinBandwidthKey, "400000")
	}
	member := func(name string) *v1.Pod {
		return greedy(name).Annotation(gangrequest.GangKey, "g").Annotation(gangrequest.GangSizeKey, "2").Obj()
	}
	linkless := func(w *testEnv) { // GPUs 0 and 5 of the cube have no link
		w.holds(t, "a", "n0", 1, 2, 3, 4, 6, 7)
	}
	like := func(name string, gpus int, key, value string) *v1.Pod {
		return pod(name, gpus).Annotation(key, value).Annotation(gangrequest.GangKey, "g").Annotation(gangrequest.GangSizeKey, "2").Obj()
	}
	for name, tc := range map[string]struct {
		pod     *v1.Pod
		arrange func(w *testEnv)
		want    string
	}{
		"a bare pod that can never fit": {
			pod: greedy("asks").Obj(), want: never + " (kubectl -n team annotate --overwrite pod asks nvtopo.dev/min-bandwidth=50GB/s)" + room,
		},
		"the pod of a Job": {
			pod:  greedy("asks").Owner("Job", "train", "j").Obj(),
			want: never + " (kubectl -n team annotate --overwrite pod asks nvtopo.dev/min-bandwidth=50GB/s; pods that Job train makes later need it again, as its template cannot be changed)" + room,
		},
		"the pod of a Deployment": {
			pod:  greedy("asks").Owner("ReplicaSet", "web-7d9f", "r").Obj(),
			want: never + " (in the pod template of ReplicaSet team/web-7d9f, or of the Deployment that made it)" + room,
		},
		"the pod of a StatefulSet": {
			pod:  greedy("asks").Owner("StatefulSet", "db", "s").Obj(),
			want: never + " (in the pod template of StatefulSet team/db)" + room,
		},
		"a bare member of a gang": {
			pod: member("asks"), arrange: func(w *testEnv) { w.waits(member("other")) },
			want: never + " (kubectl -n team annotate --overwrite pod asks other nvtopo.dev/min-bandwidth=50GB/s)" + room,
		},
		"a bare member beside one that asks for less": {
			pod: member("asks"), arrange: func(w *testEnv) { w.waits(like("other", 2, podrequest.MinLinkKey, "SYS")) },
			want: never + " (kubectl -n team annotate --overwrite pod asks nvtopo.dev/min-bandwidth=50GB/s)" + strings.Replace(room, ", or", ", run 1 member like other, or", 1),
		},
		"a gang of many bare members": {
			pod: pod("asks", 1).Annotation(podrequest.GPUModelKey, "H100").Annotation(gangrequest.GangKey, "g").Annotation(gangrequest.GangSizeKey, "10").Obj(),
			arrange: func(w *testEnv) {
				w.node(t, "n1", cube, nil)
				for i := range 9 {
					w.waits(like(fmt.Sprint("m", i), 1, podrequest.GPUModelKey, "H100"))
				}
			},
			want: "leave out nvtopo.dev/gpu-model (kubectl -n team annotate --overwrite pod asks m0 m1 m2 m3 m4 m5 m6 nvtopo.dev/gpu-model-, and so for 2 members more), " +
				"without which there is room when no other pod runs, or add nodes that have such GPUs",
		},
		"a lesser link is free now, for a gang": {
			pod: like("asks", 2, podrequest.MinLinkKey, "NVLINK"), arrange: func(w *testEnv) {
				linkless(w)
				w.node(t, "n1", cube, nil).holds(t, "b", "n1", 1, 2, 3, 4, 6, 7)
				w.waits(like("other", 2, podrequest.MinLinkKey, "NVLINK"))
			},
			want: linked + less + " (kubectl -n team annotate --overwrite pod asks other nvtopo.dev/min-link=SYS)",
		},
		"a model that no node has": {
			pod:  pod("asks", 1).Annotation(podrequest.GPUModelKey, "H100").Obj(),
			want: "leave out nvtopo.dev/gpu-model (kubectl -n team annotate --overwrite pod asks nvtopo.dev/gpu-model-), without which there is room when no other pod runs, or add nodes that have such GPUs",
		},
		"a gang in a PodGroup that says otherwise": {
			pod: pod("asks", 8).Label(schedulingv1alpha1.PodGroupLabel, "g").Obj(),
			arrange: func(w *testEnv) {
				w.node(t, "n1", "hgx-h200", nil)
				w.group("g", 2, []*v1.Pod{pod("other", 8).Obj()}, podrequest.AllowMixedModelsKey, "false")
			},
			want: "set nvtopo.dev/allow-mixed-models to true" + room[:len(", with which there is room when no other pod runs")] + ", run 1 member, or add nodes that have more",
		},
		"a pod in the way may be moved, and no other node takes it": {
			pod: pod("asks", 2).Annotation(podrequest.MinLinkKey, "NVLINK").Obj(), arrange: func(w *testEnv) { linkless(w); controlled(w.pod("a")) },
			want: strings.Replace(linked, ", or wait for the pods that are named", ", wait for the pods that are named, or end team/a for good (the other nodes have no room for all these pods: scale down what makes them again)", 1) +
				less + " (kubectl -n team annotate --overwrite pod asks nvtopo.dev/min-link=SYS)",
		},
		"a pod in the way that another node takes": {
			pod: pod("asks", 8).Obj(), arrange: func(w *testEnv) {
				w.node(t, "n1", cube, nil).holds(t, "a", "n0", 0, 1)
				w.holds(t, "b", "n1", 0, 1, 2)
				controlled(w.pod("a"))
			},
			want: "wait for the pods that are named, move team/a off n0 (kubectl cordon n0; kubectl -n team delete pod a; and once its replacement has a node: kubectl uncordon n0), or ask for fewer GPUs on one node",
		},
		"a lesser link is free now": {
			pod: pod("asks", 2).Annotation(podrequest.MinLinkKey, "NVLINK").Obj(), arrange: linkless,
			want: linked + less + " (kubectl -n team annotate --overwrite pod asks nvtopo.dev/min-link=SYS)",
		},
		"a lesser link is free now, for a pod of a Deployment": {
			pod: pod("asks", 2).Annotation(podrequest.MinLinkKey, "NVLINK").Owner("ReplicaSet", "web-7d9f", "r").Obj(), arrange: linkless,
			want: linked + less + " (in the pod template of ReplicaSet team/web-7d9f, or of the Deployment that made it)",
		},
		"no value has room now": {
			pod: pod("asks", 2).Annotation(podrequest.MinLinkKey, "NVLINK").Obj(), arrange: func(w *testEnv) { w.holds(t, "a", "n0", 0, 1, 2, 3, 4, 5, 6, 7) },
			want: "wait for the pods that are named, or add nodes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			if tc.arrange != nil {
				tc.arrange(w)
			}
			w.waits(tc.pod)
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, e.Next); diff != "" {
				t.Errorf("%s: %s (-want +got)\n%s", e.Cause, e.Reason, diff)
			}
		})
	}
}

// TestNextSteps: the step is about what the pod asks, and has the commands that move the pods that are in
// the way, where all of one node may be moved and have somewhere to go.
func TestNextSteps(t *testing.T) {
	suitable := causeOf(placement.FewSuitableGPUs)
	const unmoved = "wait for the pods that are named, or add nodes"
	stays, homeless, moves := Blocker{Pod: "team/s", Stays: "no controller"}, Blocker{Pod: "team/h"}, Blocker{Pod: "team/m", MovesTo: "n1"}
	for name, tc := range map[string]struct {
		cause      Cause
		wishes     map[string]string
		node       string
		way        []Blocker
		want, less string // in the step, and not in it
	}{
		"a model alone":              {cause: suitable, wishes: map[string]string{podrequest.GPUModelKey: "H100"}, want: "accept more models, or wait", less: "memory"},
		"memory alone":               {cause: suitable, wishes: map[string]string{podrequest.MinGPUMemoryKey: "80Gi"}, want: "accept less memory, or wait", less: "models"},
		"a model and memory":         {cause: suitable, wishes: map[string]string{podrequest.GPUModelKey: "H100", podrequest.MinGPUMemoryKey: "80Gi"}, want: nextSteps[suitable]},
		"pods that stay":             {cause: FewGPUs, way: []Blocker{stays, stays}, want: unmoved},
		"one of two that stays":      {cause: FewGPUs, way: []Blocker{stays, moves}, want: unmoved},
		"one without another node":   {cause: FewGPUs, way: []Blocker{homeless}, want: "end team/h for good (the other nodes have no room for all these pods: scale down what makes them again), or add nodes", less: "kubectl"},
		"several without":            {cause: FewGPUs, way: []Blocker{homeless, {Pod: "web/j"}}, want: "end team/h and web/j for good (", less: "kubectl"},
		"nobody knows who is in it":  {cause: FewGPUs, want: unmoved},
		"a name that a shell reads":  {cause: FewGPUs, way: []Blocker{{Pod: "team/a; reboot", MovesTo: "n1"}}, want: unmoved},
		"a node that a shell reads":  {cause: FewGPUs, node: "$(reboot)", way: []Blocker{moves}, want: unmoved},
		"pods that stay, and a link": {cause: causeOf(placement.FewLinked), way: []Blocker{stays}, want: "ask for a lesser nvtopo.dev/min-link, or wait for the pods that are named", less: "move"},
		"one that moves": {
			cause: FewGPUs, way: []Blocker{moves},
			want: "move team/m off n0 (kubectl cordon n0; kubectl -n team delete pod m; and once its replacement has a node: kubectl uncordon n0), or add nodes", less: "defrag",
		},
		"several that may": {
			cause: FewGPUs, way: []Blocker{moves, {Pod: "team/i", MovesTo: "n1"}, {Pod: "web/j", MovesTo: "n2"}},
			want: "move team/m and team/i and web/j off n0 (kubectl cordon n0; kubectl -n team delete pod m i; kubectl -n web delete pod j; and once their replacements have nodes: kubectl uncordon n0)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.node == "" {
				tc.node = "n0"
			}
			e := &Explanation{Cause: tc.cause, Candidates: []Candidate{{Node: tc.node, Blockers: tc.way}}}
			got := e.step([]*question{{pod: pod("asks", 1).Annotations(tc.wishes).Obj()}})
			if !strings.Contains(got, tc.want) || tc.less != "" && strings.Contains(got, tc.less) {
				t.Errorf("step %q, want %q without %q", got, tc.want, tc.less)
			}
		})
	}
}
