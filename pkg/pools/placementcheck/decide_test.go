// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// withLauncher adds a PodSet of one pod without GPUs.
func withLauncher(w *kueue.Workload) *kueue.Workload {
	launcher := *w.Spec.PodSets[0].DeepCopy()
	launcher.Name, launcher.Count, launcher.Template.Spec = "launcher", 1, podSpec(0)
	w.Spec.PodSets = append(w.Spec.PodSets, launcher)
	w.Status.Admission.PodSetAssignments = append(w.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{Name: "launcher", Count: new(int32(1))})
	return w
}

func TestDecide(t *testing.T) {
	communicates := []string{gangrequest.StrategyKey, "communication_heavy"}
	tests := map[string]struct {
		build        func(*testEnv)
		job          *kueue.Workload
		want         Verdict
		wantMessage  string
		wantSelector map[string]string
		wantUntil    time.Time
	}{
		"a gang goes to the rack that has room": {
			build:       func(w *testEnv) { w.racks(4, "a", "b"); w.pod("other", "a-0", nil, 0) },
			job:         job("train", 4, 8, gangOf("train", 4, communicates...)),
			want:        Ready,
			wantMessage: "optimal (same rack): 4 pods on 4 nodes of rack b, all-reduce of 1 GB in 14.6484375 ms", wantSelector: map[string]string{rackLabel: "b"},
		},
		"a gang that computes is spread over racks": {
			build:       func(w *testEnv) { w.racks(4, "a", "b") },
			job:         job("train", 4, 8, gangOf("train", 4, gangrequest.StrategyKey, "compute_heavy")),
			want:        Ready,
			wantMessage: "acceptable (adjacent racks): 4 pods on 4 nodes, all-reduce of 1 GB in 29.296875 ms",
		},
		"a gang on one node": {
			build:       func(w *testEnv) { w.racks(2, "a") },
			job:         job("train", 2, 4, gangOf("train", 2)),
			want:        Ready,
			wantMessage: "optimal: 2 pods on 1 node of rack a, all-reduce of 1 GB in 0 ms", wantSelector: map[string]string{rackLabel: "a"},
		},
		"a gang has three nodes of four": {
			build:       func(w *testEnv) { w.racks(4, "a"); w.pod("other", "a-0", nil, 3) },
			job:         job("train", 4, 8, gangOf("train", 4)),
			want:        Retry,
			wantMessage: "cluster: 3 of 4",
		},
		"the level that a gang must be in has no room": {
			build:       func(w *testEnv) { w.racks(3, "a", "b") },
			job:         job("train", 4, 8, gangOf("train", 4, gangrequest.RequiredKey, "rack")),
			want:        Retry,
			wantMessage: "rack: 3 of 4",
		},
		"a level that the fabric does not have": {
			build:       func(w *testEnv) { w.racks(4, "a") },
			job:         job("train", 4, 8, gangOf("train", 4, gangrequest.RequiredKey, "row")),
			want:        Retry,
			wantMessage: `Pod team/train-main-0: metadata.annotations[nvtopo.dev/required-topology]: the fabric has no level "row"`,
		},
		"a gang of more pods than any has": {
			build:       func(w *testEnv) { w.racks(1, "a") },
			job:         job("train", 50_000_000, 8, gangOf("train", 4)),
			want:        Retry,
			wantMessage: "a gang of more than 16384 pods",
		},
		"racks of one name in two zones": {
			build: func(w *testEnv) {
				for _, zone := range []string{"east", "west"} {
					for _, n := range []string{"0", "1"} {
						w.node(zone+n, "dgx-a100", map[string]string{rackLabel: "r", v1.LabelTopologyZone: zone})
					}
				}
				w.pod("other", "east0", nil, 0)
			},
			job:         job("train", 2, 8, gangOf("train", 2)),
			want:        Ready,
			wantMessage: "optimal (same rack): 2 pods on 2 nodes of rack west/r", wantSelector: map[string]string{rackLabel: "r", v1.LabelTopologyZone: "west"},
		},
		"a gang of two PodSets, of which one has no GPUs": {
			build:       func(w *testEnv) { w.racks(2, "a", "b"); w.pod("other", "a-0", nil, 0) },
			job:         withLauncher(job("train", 2, 8, gangOf("train", 3))),
			want:        Ready,
			wantMessage: "optimal (same rack): 3 pods on 2 nodes of rack b", wantSelector: map[string]string{rackLabel: "b"},
		},
		"its second PodSet has no room": {
			build: func(w *testEnv) {
				w.racks(2, "a")
				for i := range w.Nodes {
					w.Nodes[i].Status.Allocatable[v1.ResourceCPU] = resource.MustParse("1")
				}
			},
			job:         withLauncher(job("train", 2, 8, gangOf("train", 3))),
			want:        Retry,
			wantMessage: "cluster: 2 of 3",
		},
		"the job names the rack itself": {
			build: func(w *testEnv) { w.racks(2, "a", "b") },
			job: func() *kueue.Workload {
				w := job("train", 2, 8, gangOf("train", 2))
				w.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{rackLabel: "b"}
				return w
			}(),
			want:        Ready,
			wantMessage: "optimal (same rack): 2 pods on 2 nodes of rack b",
		},
		"single pods": {
			build:       func(w *testEnv) { w.racks(1, "a") },
			job:         job("serve", 2, 4, nil),
			want:        Ready,
			wantMessage: "there is room",
		},
		"one single pod too many": {
			build:       func(w *testEnv) { w.racks(1, "a"); w.pod("other", "a-0", nil, 7) },
			job:         job("serve", 3, 3, nil),
			want:        Retry,
			wantMessage: "cluster: 2 of 3",
		},
		"GPUs that are free, and not linked": { // 0 and 4 have no other neighbour free
			build: func(w *testEnv) {
				w.node("n", "a6000-8-bridged", nil)
				w.pod("other", "n", nil, 1, 2, 5, 6)
			},
			job:         job("train", 1, 2, map[string]string{podrequest.MinLinkKey: "NV4"}),
			want:        Retry,
			wantMessage: "cluster: 0 of 1",
		},
		"the same GPUs without that demand": {
			build: func(w *testEnv) {
				w.node("n", "a6000-8-bridged", nil)
				w.pod("other", "n", nil, 1, 2, 5, 6)
			},
			job:         job("train", 1, 2, nil),
			want:        Ready,
			wantMessage: "there is room",
		},
		"CPU is short": {
			build: func(w *testEnv) {
				w.node("n", "dgx-a100", nil).Status.Allocatable[v1.ResourceCPU] = resource.MustParse("2")
			},
			job:         job("train", 3, 1, gangOf("train", 3)),
			want:        Retry,
			wantMessage: "cluster: 2 of 3",
		},
		"nodes that take no pods": {
			build: func(w *testEnv) {
				w.node("cordoned", "dgx-a100", nil).Spec.Unschedulable = true
				w.node("tainted", "dgx-a100", nil).Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
				w.node("silent", "dgx-a100", nil).Status.Conditions[0].Status = v1.ConditionUnknown
				w.node("of another pool", "dgx-a100", map[string]string{poolLabel: "other"})
				w.node("stale", "dgx-a100", nil)
				w.Topologies[4].Status.Conditions = []metav1.Condition{{Type: topologyv1alpha1.ConditionStale, Status: metav1.ConditionTrue}}
				w.node("replaced", "dgx-a100", nil).UID = "another"
			},
			job:         job("serve", 1, 1, nil),
			want:        Retry,
			wantMessage: "cluster: 0 of 1",
		},
		"no topology at all": {
			build:       func(w *testEnv) { w.racks(1, "a"); w.Topologies = nil },
			job:         job("serve", 100, 8, nil),
			want:        Ready,
			wantMessage: "not checked: no node publishes a topology that counts",
		},
		"pods of another scheduler count by number": {
			build: func(w *testEnv) { w.racks(1, "a"); w.pod("other", "a-0", nil, 0, 1, 2, 3, 4, 5) },
			job: func() *kueue.Workload {
				w := job("serve", 3, 1, nil)
				w.Spec.PodSets[0].Template.Spec.SchedulerName = "default-scheduler"
				return w
			}(),
			want:        Retry,
			wantMessage: "cluster: 2 of 3",
		},
		"what is asked cannot be read": {
			build:       func(w *testEnv) { w.racks(1, "a") },
			job:         job("train", 1, 2, map[string]string{podrequest.MinLinkKey: "fast"}),
			want:        Retry,
			wantMessage: podrequest.MinLinkKey,
		},
		"a place that is about to be free": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("going", "a-0", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon.Add(20 * time.Second)} }, 0)
			},
			job:         job("train", 1, 8, nil),
			want:        Wait,
			wantMessage: "cluster: 0 of 1; waits for pods that are ending: 1", wantUntil: noon.Add(50 * time.Second),
		},
		"a pod that should have been gone long ago": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("going", "a-0", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon.Add(-time.Minute)} }, 0)
			},
			job:         job("train", 1, 8, nil),
			want:        Retry,
			wantMessage: "cluster: 0 of 1",
		},
		"a stopped job's pod, of which nobody has heard that it goes": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("going", "a-0", ofJob("old"), 0)
				w.Workloads = []kueue.Workload{*job("old", 1, 1, nil)}
				w.Workloads[0].Spec.Active = new(false)
			},
			job:         job("train", 1, 8, nil),
			want:        Wait,
			wantMessage: "cluster: 0 of 1; waits for pods that are ending: 1", wantUntil: noon.Add(time.Minute),
		},
		"the pod of a job that Kueue evicts": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("going", "a-0", func(p *v1.Pod) { ofJob("old")(p); p.Spec.TerminationGracePeriodSeconds = new(int64(5)) }, 0)
				w.Workloads = []kueue.Workload{*evictedAtNoon(job("old", 1, 1, nil))}
			},
			job:         job("train", 1, 8, nil),
			want:        Wait,
			wantMessage: "cluster: 0 of 1; waits for pods that are ending: 1", wantUntil: noon.Add(35 * time.Second),
		},
		"a pod of a Deployment that Kueue evicts: its Workload is the pod's, not the ReplicaSet's": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("going", "a-0", ofJob("replicas"), 0)
				w.Workloads = []kueue.Workload{*evictedAtNoon(job("old", 1, 1, nil))}
				w.Workloads[0].OwnerReferences[0].UID = "going"
			},
			job:         job("train", 1, 8, nil),
			want:        Wait,
			wantMessage: "cluster: 0 of 1; waits for pods that are ending: 1", wantUntil: noon.Add(time.Minute),
		},
		"the pod of an evicted job that stays": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.Now = noon.Add(2 * time.Minute)
				w.pod("staying", "a-0", ofJob("old"), 0)
				w.Workloads = []kueue.Workload{*evictedAtNoon(job("old", 1, 1, nil))}
			},
			job:         job("train", 1, 8, nil),
			want:        Retry,
			wantMessage: "cluster: 0 of 1",
		},
		"a pod with a grace period of an hour": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("slow", "a-0", func(p *v1.Pod) { ofJob("old")(p); p.Spec.TerminationGracePeriodSeconds = new(int64(3600)) }, 0)
				w.Workloads = []kueue.Workload{*evictedAtNoon(job("old", 1, 1, nil))}
			},
			job:         job("train", 1, 8, nil),
			want:        Retry,
			wantMessage: "cluster: 0 of 1",
		},
		"a pod that is deleted, and has an hour to end": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("slow", "a-0", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon.Add(time.Hour)} }, 0)
			},
			job:         job("train", 1, 8, nil),
			want:        Retry,
			wantMessage: "cluster: 0 of 1",
		},
		"the pod of a job that keeps its quota": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("running", "a-0", ofJob("old"), 0)
				w.Workloads = []kueue.Workload{*job("old", 1, 1, nil)}
			},
			job:         job("train", 1, 8, nil),
			want:        Retry,
			wantMessage: "cluster: 0 of 1",
		},
		"a pod that claims a Workload which is not there": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("running", "a-0", func(p *v1.Pod) { p.Annotations[kueue.AnnotationWorkload] = "nobody" }, 0)
			},
			job:         job("train", 1, 8, nil),
			want:        Retry,
			wantMessage: "cluster: 0 of 1",
		},
		"the scheduler evicts nobody for a gang that has room on two models": {
			build: func(w *testEnv) {
				w.node("n0", "dgx-a100", nil)
				w.node("n1", "hgx-h200", nil)
				w.node("n2", "hgx-h200", nil)
				w.pod("extra", "n2", func(p *v1.Pod) { p.Spec.Priority = new(int32(-1)) }, 0)
			},
			job:         job("train", 2, 8, gangOf("g", 2)),
			want:        Retry,
			wantMessage: "cluster: 1 of 2 on NVIDIA-A100-SXM4-40GB, 1 on NVIDIA-H200; allow-mixed-models would fit",
		},
		"the scheduler can evict extras": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("extra", "a-0", func(p *v1.Pod) { p.Spec.Priority = new(int32(-1)) }, 0)
			},
			job:         job("train", 1, 8, nil),
			want:        Ready,
			wantMessage: "there is room once pods of a lower priority are evicted",
		},
		"an extra evicts nobody": {
			build: func(w *testEnv) {
				w.racks(1, "a")
				w.pod("extra", "a-0", func(p *v1.Pod) { p.Spec.Priority = new(int32(-1)) }, 0)
				w.PriorityClasses = []schedulingv1.PriorityClass{{ObjectMeta: metav1.ObjectMeta{Name: "extra"}, Value: -1}}
			},
			job: func() *kueue.Workload {
				w := job("extra", 1, 8, nil)
				w.Spec.PodSets[0].Template.Spec.PriorityClassName = "extra"
				return w
			}(),
			want:        Retry,
			wantMessage: "cluster: 0 of 1",
		},
		"a gang with patience, and a better level on the empty cluster": {
			build: func(w *testEnv) {
				w.racks(2, "a", "b")
				w.pod("p", "a-0", nil, 0)
				w.pod("q", "b-0", nil, 0)
			},
			job:         job("train", 2, 8, gangOf("train", 2, communicates...)),
			want:        Retry,
			wantMessage: "waits until 2026-11-24T12:04:00Z for a better level than cluster: rack is possible on the empty cluster", wantUntil: noon.Add(4 * time.Minute),
		},
		"its patience is over": {
			build: func(w *testEnv) {
				w.racks(2, "a", "b")
				w.pod("p", "a-0", nil, 0)
				w.pod("q", "b-0", nil, 0)
			},
			job:  job("train", 2, 8, gangOf("train", 2, gangrequest.StrategyKey, "communication_heavy", gangrequest.PatienceKey, "30s")),
			want: Ready, wantMessage: "acceptable (adjacent racks)",
		},
		"the level is as good as on the empty cluster": {
			build: func(w *testEnv) { w.racks(1, "a", "b") },
			job:   job("train", 2, 8, gangOf("train", 2, communicates...)),
			want:  Ready, wantMessage: "acceptable (adjacent racks)",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			tc.build(w)
			got := Decide(NewSnapshot(&w.World, NewGraphs()), tc.job)
			if got.Verdict != tc.want || !strings.Contains(got.Message, tc.wantMessage) || !got.Until.Equal(tc.wantUntil) {
				t.Errorf("got %s %q until %s,\nwant %s %q until %s\n%s", got.Verdict, got.Message, got.Until, tc.want, tc.wantMessage, tc.wantUntil, w)
			}
			if tc.want != Ready {
				return
			}
			want := make([]kueue.PodSetUpdate, len(tc.job.Spec.PodSets))
			for i := range want {
				want[i] = kueue.PodSetUpdate{Name: tc.job.Spec.PodSets[i].Name, NodeSelector: tc.wantSelector}
			}
			for i := range got.PodSetUpdates {
				got.PodSetUpdates[i].Annotations = nil // TestPromisedModel's
			}
			if diff := cmp.Diff(want, got.PodSetUpdates); diff != "" {
				t.Errorf("podSetUpdates (-want,+got):\n%s", diff)
			}
		})
	}
}
