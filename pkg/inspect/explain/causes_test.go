// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	cube   = "dgx1-v100" // two NUMA nodes of four GPUs, 40 CPUs each
	hopper = "dgx-h100"
	quad   = "hgx-a100-4"
)

// keptApart gives pods a label and an anti-affinity to it: each is on a node of its own.
func keptApart(pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Labels = map[string]string{"job": "train"}
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
		}}}}
	}
	return pods
}

// wantPort80 gives pods the host port 80.
func wantPort80(pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	}
	return pods
}

// TestCauses: the cause that is named is the true one. It has a pod named "asks" that waits, each
// time for another cause.
func TestCauses(t *testing.T) {
	asks := func(gpus int) *testobj.PodWrapper { return pod("asks", gpus) }
	for name, tc := range map[string]struct {
		build        func(t *testing.T, w *testEnv)
		want         Cause
		wantText     string // in the reason or the evidence
		wantBlockers []string
		wantWish     string // in the first relaxation
		wantNext     string // in the next step
	}{
		"16 GPUs are free on four nodes, and the gang asks 8 on each of two": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				for i := range 4 {
					n := fmt.Sprint("n", i)
					w.node(t, n, cube, nil).holds(t, "half-"+n, n, 0, 1, 2, 3)
				}
				w.group("train", 2, []*v1.Pod{asks(8).Obj(), pod("other", 8).Obj()})
			},
			want: Fragmented, wantText: "16 nvidia.com/gpu are free on 4 nodes and the gang asks 16 in all, 8 on one node", wantBlockers: []string{"team/half-n0"},
		},
		"8 GPUs are free on two nodes": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).holds(t, "half-0", "n0", 0, 1, 2, 3)
				w.node(t, "n1", cube, nil).holds(t, "half-1", "n1", 0, 1, 2, 3)
				w.waits(asks(8).Obj())
			},
			want: Fragmented, wantText: "n0 4, n1 4", wantBlockers: []string{"team/half-0"}, wantWish: "4 of the 8",
		},
		"8 GPUs are free on many nodes, of which the first few are named": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				for i := range 10 {
					n := fmt.Sprint("n", i)
					w.node(t, n, cube, nil).holds(t, "half-"+n, n, 0, 1, 2, 3)
				}
				w.waits(asks(8).Obj())
			},
			want: Fragmented, wantText: "free: n0 4, n1 4, n2 4 and 7 more", wantBlockers: []string{"team/half-n0"},
		},
		"a gang finds GPUs on many nodes, of which the first few are named": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				for i := range 10 {
					n := fmt.Sprint("n", i)
					w.node(t, n, cube, nil).holds(t, "half-"+n, n, 0, 1, 2, 3)
				}
				w.group("train", 2, []*v1.Pod{asks(8).Obj(), pod("other", 8).Obj()})
			},
			want: Fragmented, wantText: "free: n0 4, n1 4, n2 4 and 7 more", wantBlockers: []string{"team/half-n0"},
		},
		"members of a gang want the same host port, and there is one node": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.group("train", 2, wantPort80(asks(1).Obj(), pod("second", 1).Obj()))
			},
			want: NeverFits, wantText: "one member on each node, for they want the host port 80; even if",
		},
		"members of a gang ask more CPU together than a node has beside its GPUs": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.group("train", 2, []*v1.Pod{pod("asks", 1).CPU("40").Obj(), pod("second", 1).CPU("40").Obj()})
			},
			want: NeverFits, wantText: "because of 40 of cpu for each member; even if no other pod ran: room for 1 of 2 members; n0: asks 40, 24 left beside 1 member",
		},
		"members of a gang ask more CPU and more memory than a node has": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.group("train", 2, []*v1.Pod{pod("asks", 1).CPU("40").Memory("300Gi").Obj(), pod("second", 1).CPU("40").Memory("300Gi").Obj()})
			},
			want: NeverFits, wantText: "n0: asks 300Gi, 212Gi left beside 1 member",
		},
		"members of a gang ask CPU, of which there is plenty, and too much memory and storage": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.object("n0").Status.Allocatable[v1.ResourceEphemeralStorage] = resource.MustParse("100Gi")
				members := []*v1.Pod{pod("asks", 1).CPU("1").Memory("300Gi").Obj(), pod("second", 1).CPU("1").Memory("300Gi").Obj()}
				for _, p := range members {
					p.Spec.Containers[0].Resources.Requests[v1.ResourceEphemeralStorage] = resource.MustParse("60Gi")
				}
				w.group("train", 2, members)
			},
			want: NeverFits, wantText: "because of 300Gi of memory for each member, and also of 60Gi of ephemeral-storage for each member",
		},
		"a launcher without GPUs, and workers that ask more CPU than a node has beside its GPUs": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.Nodes = append(w.Nodes, *testobj.Node("cpu").Label(v1.LabelHostname, "cpu").CPU("8").Memory("8Gi").Ready(v1.ConditionTrue).Obj())
				w.group("train", 3, []*v1.Pod{pod("asks", 0).CPU("1").Obj(), pod("one", 1).CPU("40").Obj(), pod("two", 1).CPU("40").Obj()})
			},
			want: NeverFits, wantText: "n0: asks 40, 24 left beside 1 member",
		},
		"members of a gang want one host port and have an anti-affinity": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.group("train", 2, wantPort80(keptApart(asks(1).Obj(), pod("second", 1).Obj())...))
			},
			want: NeverFits, wantText: "the host port 80, and also of one member on each node, by their anti-affinity; even if no other pod ran: room for 1 of 2 members",
		},
		"members of a gang ask more GPUs together than there are, and more CPU": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.group("train", 2, []*v1.Pod{pod("asks", 8).CPU("40").Obj(), pod("second", 8).CPU("40").Obj()})
			},
			want: NeverFits, wantText: "it asks 16 nvidia.com/gpu, and the nodes that it may run on have 8",
		},
		"an anti-affinity keeps members of a gang apart": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.group("train", 2, keptApart(asks(1).Obj(), pod("second", 1).Obj()))
			},
			want: NeverFits, wantText: "one member on each node, by their anti-affinity; even if",
		},
		"one member of a gang selects nodes that are not there": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				second := pod("second", 2).Obj()
				second.Spec.NodeSelector = map[string]string{"gpu-type": "h1000"}
				w.group("train", 2, []*v1.Pod{asks(2).Obj(), second})
			},
			want: NotSelected, wantText: "n0: node selector gpu-type=h1000", wantWish: "node selector",
		},
		"nothing is free": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).holds(t, "all", "n0", 0, 1, 2, 3, 4, 5, 6, 7)
				w.waits(asks(2).Obj())
			},
			want: FewGPUs, wantText: "asks 2 nvidia.com/gpu, and 0 are free", wantBlockers: []string{"team/all"},
		},
		"a gang fits on two models, and on neither alone": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).node(t, "n1", "hgx-h200", nil)
				w.group("train", 2, []*v1.Pod{asks(8).Obj(), pod("second", 8).Obj()})
			},
			want: NeverFits, wantText: "members get one model, of which there is room for 1 of 2 on NVIDIA-", wantWish: gangrequest.MixedModelsKey,
		},
		"a gang is a member short": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.group("train", 3, []*v1.Pod{asks(1).Obj(), pod("second", 1).Obj()})
			},
			want: GangIncomplete, wantText: "2 of the 3 members",
		},
		"a gang whose rack has no room": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				for i := range 4 {
					w.node(t, fmt.Sprint("n", i), cube, map[string]string{"topology.kubernetes.io/rack": fmt.Sprint("r", i/2)})
				}
				var members []*v1.Pod
				for i := range 2 {
					members = append(members, pod(fmt.Sprint("m", i), 8).Obj())
				}
				w.group("train", 3, append(members, asks(8).Obj()), gangrequest.RequiredKey, "rack")
			},
			want: NeverFits, wantText: "because of nvtopo.dev/required-topology: rack; even if no other pod ran: room for 2 of 3 members", wantWish: gangrequest.RequiredKey,
		},
		"a taint": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.object("n0").Spec.Taints = []v1.Taint{{Key: "team", Value: "vision", Effect: v1.TaintEffectNoSchedule}}
				w.waits(asks(2).Obj())
			},
			want: Tainted, wantText: "n0: team=vision:NoSchedule", wantWish: "team=vision",
		},
		"a taint is not the cause where other nodes are only full": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).node(t, "n1", cube, nil)
				w.object("n0").Spec.Taints = []v1.Taint{{Key: "team", Effect: v1.TaintEffectNoSchedule}}
				w.holds(t, "all", "n1", 0, 1, 2, 3, 4, 5, 6, 7)
				w.waits(asks(2).Obj())
			},
			want: FewGPUs, wantBlockers: []string{"team/all"}, wantWish: "taint",
		},
		"a cordon": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.object("n0").Spec.Unschedulable = true
				w.waits(asks(2).Obj())
			},
			want: Cordoned,
		},
		"a node selector of no node": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				p := asks(2).Obj()
				p.Spec.NodeSelector = map[string]string{"zone": "mars"}
				w.waits(p)
			},
			want: NotSelected, wantWish: "node selector",
		},
		"a node affinity of no node, beside a selector that all meet": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, map[string]string{"os": "linux"})
				p := asks(2).Obj()
				p.Spec.NodeSelector = map[string]string{"os": "linux"}
				p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{"mars"}}},
				}}}}}
				w.waits(p)
			},
			want: NotSelected, wantText: "n0: the pod's node selector or required node affinity does not match", wantWish: "node selector",
		},
		"a GPU of the only node with the model is unhealthy, and all its GPUs are asked": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).node(t, "n1", hopper, nil).fail("n1", 3)
				w.waits(asks(8).Annotation(podrequest.GPUModelKey, "H100").Obj())
			},
			want: "UnhealthyGPUs", wantText: "GPUs are unhealthy: n1 would do but for this; n1: 1 of 8 GPUs is unhealthy: GPU 3, Xid 79", wantNext: "nvtopo topology NODE",
		},
		"more GPUs are asked than a machine has whose GPUs are unhealthy": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", hopper, nil).fail("n0", 3)
				w.waits(asks(9).Obj())
			},
			want: NeverFits, wantText: "the largest that it may run on has 8 for pods",
		},
		"an unhealthy GPU is not the cause where pods hold the GPUs of another node": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", hopper, nil).fail("n0", 3)
				w.node(t, "n1", hopper, nil).holds(t, "h1", "n1", 0)
				w.waits(asks(8).Obj())
			},
			want: FewGPUs, wantText: "n1 would give it", wantBlockers: []string{"team/h1"},
		},
		"a gang asks for all GPUs, and one is unhealthy": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", hopper, nil).node(t, "n1", hopper, nil).fail("n1", 3)
				w.group("train", 2, []*v1.Pod{asks(8).Obj(), pod("second", 8).Obj()})
			},
			want: "UnhealthyGPUs", wantText: "n1 would do but for this; without: room for 1 of 2 members; n1: 1 of 8 GPUs is unhealthy: GPU 3, Xid 79", wantNext: "nvtopo topology NODE",
		},
		"a gang asks for more than all GPUs, and one is unhealthy": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", hopper, nil).fail("n0", 3)
				w.group("train", 2, []*v1.Pod{asks(8).Obj(), pod("second", 8).Obj()})
			},
			want: NeverFits, wantText: "it asks 16 nvidia.com/gpu, and the nodes that it may run on have 8",
		},
		"a stale graph": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).silence("n0")
				w.node(t, "n1", cube, nil).holds(t, "all", "n1", 0, 1, 2, 3, 4, 5, 6, 7)
				w.waits(asks(2).Obj())
			},
			want: StaleGraph, wantText: "n0",
			wantNext: "see why the exporter of node n0 is silent: kubectl -n nvtopo-system get lease exporter-n0 -o custom-columns=LEASE:.metadata.name,HOLDER:.spec.holderIdentity,RENEWED:.spec.renewTime; " +
				"kubectl -n nvtopo-system get pods -o wide -l app.kubernetes.io/name=nvtopo-exporter --field-selector spec.nodeName=n0",
		},
		"no graph": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.Topologies = nil
				w.waits(asks(2).Obj())
			},
			want: causeOf(placement.NoGraph),
		},
		"an earlier node of the name": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.topology("n0").Spec.NodeUID = "earlier"
				w.waits(asks(2).Obj())
			},
			want: causeOf(placement.NodeReplaced),
		},
		"kubelet would refuse what it cannot align": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.topology("n0").Status.Kubelet = &topologyv1alpha1.Kubelet{TopologyManagerPolicy: "single-numa-node", Scope: "container"}
				w.waits(asks(6).Obj())
			},
			want: causeOf(placement.KubeletRefuses), wantText: "even when empty", wantWish: "2 of the 6",
		},
		"the policy asks one NUMA node, and what is free is on two": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).holds(t, "a", "n0", 0, 1, 4, 5)
				w.waits(asks(4).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj())
			},
			want: causeOf(placement.FewInNUMA), wantBlockers: []string{"team/a"}, wantWish: podrequest.TopologyPolicyKey,
		},
		"no free set has the link asked": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).holds(t, "a", "n0", 0, 1, 2, 7)
				w.waits(asks(4).Annotation(podrequest.MinLinkKey, "NVLINK").Obj())
			},
			want: causeOf(placement.FewLinked), wantBlockers: []string{"team/a"}, wantWish: podrequest.MinLinkKey + ": NVLINK",
		},
		"no machine has the link asked": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", "l40s-8", nil)
				w.waits(asks(2).Annotation(podrequest.MinLinkKey, "NVLINK").Obj())
			},
			want: NeverFits, wantText: "because of nvtopo.dev/min-link: NVLINK: without, 1 node would take it; n0 would give it GPUs 0,1, PIX, 24 GB/s of 24 when empty", wantWish: podrequest.MinLinkKey,
		},
		"CPU is short": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.waits(pod("hog", 0).CPU("60").Node("n0").Phase(v1.PodRunning).Obj())
				w.waits(pod("asks", 2).CPU("8").Obj())
			},
			want: FewCPUs, wantText: "asks 8, 4 left", wantBlockers: []string{"team/hog"},
		},
		"memory that no node has": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.waits(pod("asks", 2).Memory("1Ti").Obj())
			},
			want: NeverFits, wantText: "because of 1Ti of memory: without, 1 node would take it",
		},
		"a model that no node has": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.waits(asks(1).Annotation(podrequest.GPUModelKey, "H100").Obj())
			},
			want: NeverFits, wantText: "because of nvtopo.dev/gpu-model: H100", wantWish: podrequest.GPUModelKey, wantNext: "leave out nvtopo.dev/gpu-model (kubectl ",
		},
		"the policy asks one NUMA node, and nobody knows on which the GPUs are": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				for i := range w.topology("n0").Spec.GPUs {
					w.topology("n0").Spec.GPUs[i].NUMANode = -1
				}
				w.waits(asks(2).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj())
			},
			want: causeOf(placement.UnknownNUMA), wantText: "NUMA nodes of GPUs, CPUs or memory are not known", wantWish: podrequest.TopologyPolicyKey,
		},
		"the pod asks for GPU memory, and the driver tells none": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				for i := range w.topology("n0").Spec.GPUs {
					w.topology("n0").Spec.GPUs[i].Memory = nil
				}
				w.waits(asks(1).Annotation(podrequest.MinGPUMemoryKey, "16Gi").Obj())
			},
			want: causeOf(placement.UnknownGPUMemory), wantText: "whose memory is not known", wantWish: podrequest.MinGPUMemoryKey,
		},
		"the pod asks for a model, and that of the GPUs is not known": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				for i := range w.topology("n0").Spec.GPUs {
					w.topology("n0").Spec.GPUs[i].Model = ""
				}
				w.waits(asks(1).Annotation(podrequest.GPUModelKey, "V100").Obj())
			},
			want: causeOf(placement.UnknownGPUModel), wantText: "whose model is not known", wantWish: podrequest.GPUModelKey,
		},
		"a value that cannot be read": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.waits(asks(1).Annotation(podrequest.MinLinkKey, "NVLNK").Obj())
			},
			want: Unreadable, wantText: podrequest.MinLinkKey,
		},
		"another scheduler": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				p := asks(1).Obj()
				p.Spec.SchedulerName = "default-scheduler"
				w.node(t, "n0", cube, nil).waits(p)
			},
			want: OtherScheduler, wantText: `"default-scheduler"`,
		},
		"a scheduling gate": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				p := asks(1).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
				w.node(t, "n0", cube, nil).waits(p)
			},
			want: SchedulingGated, wantText: "example.com/wait",
		},
		"quota": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.waits(p)
			},
			want: NoQuota, wantText: "Workload team/big of queue holds 6",
		},
		"no queue": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				w.Workloads = nil
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.waits(p)
			},
			want: NoQueue, wantText: "it has no label kueue.x-k8s.io/queue-name", wantNext: "set the label kueue.x-k8s.io/queue-name to one of local",
		},
		"a queue that is not there": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				p := asks(4).Obj()
				p.Spec.SchedulingGates, p.Labels = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}, map[string]string{kueue.LabelQueue: "lokal"}
				w.Workloads[1].Spec.QueueName = "lokal"
				w.waits(p)
			},
			want: NoQueue, wantText: `there is no LocalQueue "lokal" in namespace team`, wantNext: "to one of local",
		},
		"a queue that is not there, beside one without GPUs": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				w.Workloads, w.ClusterQueues[0].Spec.ResourceGroups = nil, nil
				p := asks(4).Label(kueue.LabelQueue, "training").Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.waits(p)
			},
			want: NoQueue, wantText: `there is no LocalQueue "training"`,
			wantNext: "have a LocalQueue made in namespace team whose ClusterQueue has nvidia.com/gpu",
		},
		"a queue of a pool that gives the tenant nothing": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				w.Workloads, w.LocalQueues[0].Name, w.LocalQueues[0].Spec.ClusterQueue = nil, names.DefaultQueue, names.DefaultClusterQueue
				of := &w.ClusterQueues[0]
				of.Name, of.Labels = "training.vision", map[string]string{names.LabelManaged: "training", poolv1alpha1.LabelTenant: "vision"}
				p := asks(4).Label(kueue.LabelQueue, "training").Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.waits(p)
			},
			want: NoQueue, wantText: `there is no LocalQueue "training"`,
			wantNext: "ask an administrator for quota: pool training gives the tenant of namespace team nothing; spec.quotas or spec.defaultQuota of ComputePool training gives it some",
		},
		"a queue of a pool that leaves the tenant out of its queues": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				w.Namespaces = []v1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{poolv1alpha1.LabelTenant: "speech"}}}}
				w.Workloads, w.LocalQueues = nil, nil
				of := &w.ClusterQueues[0]
				of.Name, of.Labels = "training.batch", map[string]string{names.LabelManaged: "training", names.LabelQueue: "batch"}
				p := asks(4).Label(kueue.LabelQueue, "training.batch").Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.waits(p)
			},
			want: NoQueue, wantText: `there is no LocalQueue "training.batch"`,
			wantNext: "pool training gives tenant speech nothing; the field tenants of spec.queues of ComputePool training gives it some",
		},
		"a queue of a ClusterQueue that is not there": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec.QueueName, w.LocalQueues[0].Spec.ClusterQueue = "local", "gone"
				w.waits(p)
			},
			want: NoQueue, wantText: `there is no ClusterQueue "gone"`, wantNext: "create that ClusterQueue",
		},
		"a job with quota whose pods ask a bandwidth that no machine has": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).quota(t)
				p := asks(4).Annotation(podrequest.MinBandwidthKey, "600").Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: p.Annotations}, Spec: p.Spec}}}
				w.Workloads[1].Status.Conditions[0].Status = metav1.ConditionTrue
				w.Workloads[1].Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: names.CheckPlacementObject, State: kueue.CheckRetry, Message: "no place"}}
				w.waits(p)
			},
			want: NeverFits, wantText: "because of nvtopo.dev/min-bandwidth: 600", wantNext: "set nvtopo.dev/min-bandwidth to 450GB/s (kubectl -n team annotate --overwrite pod asks ",
		},
		"a job with quota whose pods fit an empty machine": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).quota(t)
				w.holds(t, "busy", "h0", 0, 1, 2, 3, 4)
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: v1.PodTemplateSpec{Spec: p.Spec}}}
				w.Workloads[1].Status.Conditions[0].Status = metav1.ConditionTrue
				w.Workloads[1].Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: names.CheckPlacementObject, State: kueue.CheckRetry, Message: "no place"}}
				w.waits(p)
			},
			want: NoPlaceYet, wantNext: "wait: the job is tried again when room comes free",
		},
		"a queue without GPUs, beside one that has some": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				w.ClusterQueues = append(w.ClusterQueues, kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cpus"}})
				w.LocalQueues = append(w.LocalQueues, kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "other"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cpus"}})
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec = kueue.WorkloadSpec{QueueName: "other", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: v1.PodTemplateSpec{Spec: p.Spec}}}}
				w.waits(p)
			},
			want: OverQuota, wantText: "ClusterQueue cpus has no nvidia.com/gpu", wantNext: "set the label kueue.x-k8s.io/queue-name to one of local",
		},
		"the queue without GPUs that tenants have, whose ClusterQueue may not be read": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				w.ClusterQueues, w.LocalQueues[0].Name, w.LocalQueues[0].Spec.ClusterQueue = nil, names.DefaultQueue, names.DefaultClusterQueue
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec = kueue.WorkloadSpec{QueueName: names.DefaultQueue, PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: v1.PodTemplateSpec{Spec: p.Spec}}}}
				w.waits(p)
			},
			want: OverQuota, wantText: "ClusterQueue nvtopo-default has no nvidia.com/gpu",
			wantNext: "have a LocalQueue made in namespace team whose ClusterQueue has nvidia.com/gpu",
		},
		"more than the quota of the queue": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 5, Template: v1.PodTemplateSpec{Spec: asks(4).Obj().Spec}}}
				w.waits(p)
			},
			want: OverQuota, wantText: "it asks 20 nvidia.com/gpu, and ClusterQueue queue can have at most 8", wantNext: "ask for at most 8 nvidia.com/gpu",
		},
		"more than the quota of the queue, and than any node has for a pod": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				w.ClusterQueues[0].Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("16")
				p := asks(24).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: v1.PodTemplateSpec{Spec: p.Spec}}}
				w.waits(p)
			},
			want: OverQuota, wantText: "it asks 24 nvidia.com/gpu, and ClusterQueue queue can have at most 16",
			wantNext: "ask for at most 16 nvidia.com/gpu and at most 8 for each pod, or have the quota of ClusterQueue queue raised",
		},
		"more than the quota of the queue, by limits alone": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				template := asks(4).Obj().Spec
				for i := range template.Containers {
					r := &template.Containers[i].Resources
					r.Limits, r.Requests = r.Requests, nil
				}
				w.Workloads[1].Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 5, Template: v1.PodTemplateSpec{Spec: template}}}
				w.waits(p)
			},
			want: OverQuota, wantText: "it asks 20 nvidia.com/gpu, and ClusterQueue queue can have at most 8", wantNext: "ask for at most 8 nvidia.com/gpu",
		},
		"more than any one flavor of the queue can have": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3, Template: v1.PodTemplateSpec{Spec: asks(4).Obj().Spec}}}
				flavors := &w.ClusterQueues[0].Spec.ResourceGroups[0].Flavors
				other := (*flavors)[0].DeepCopy()
				other.Name = "other"
				*flavors = append(*flavors, *other)
				w.waits(p)
			},
			want: OverQuota, wantText: "it asks 12 nvidia.com/gpu of one flavor, and ClusterQueue queue can have at most 8", wantNext: "ask for at most 8 nvidia.com/gpu of one flavor",
		},
		"as much as the queue may have when it borrows": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 5, Template: v1.PodTemplateSpec{Spec: asks(4).Obj().Spec}}}
				w.ClusterQueues[0].Spec.CohortName = "cohort"
				w.ClusterQueues[0].Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = new(resource.MustParse("12"))
				w.waits(p)
			},
			want: NoQuota, wantText: "insufficient unused quota", wantNext: "wait for quota",
		},
		"a claim that is not there": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				p := asks(1).Obj()
				p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
				w.node(t, "n0", cube, nil).waits(p)
			},
			want: VolumeMissing, wantText: `"data"`,
		},
		"a claim that is not bound": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				p := asks(1).Obj()
				p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
				w.Claims = []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data"}}}
				w.node(t, "n0", cube, nil).waits(p)
			},
			want: VolumeUnbound, wantText: `"data"`,
		},
		"nothing": {
			build: func(t *testing.T, w *testEnv) { t.Helper(); w.node(t, "n0", cube, nil).waits(asks(1).Obj()) },
			want:  WaitsForItsTurn, wantText: "n0", wantNext: "nvtopo get pods -A --state pending",
		},
		"what is not about GPUs": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				p := asks(1).Obj()
				p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/1 nodes are available: 1 node(s) didn't have free ports"}}
				w.node(t, "n0", cube, nil).waits(p)
			},
			want: OtherPlugin, wantText: "free ports",
		},
		"a GPU is lost under a pod, and kubelet offers one less": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).holds(t, "h0", "n0", 0, 1)
				w.holds(t, "d0", "n0", 2, 3)
				w.holds(t, "d1", "n0", 4, 5)
				lost := w.topology("n0")
				lost.Status.GPUHealth = []topologyv1alpha1.GPUHealth{{ID: lost.Spec.GPUs[0].ID, Reason: "GPU is lost"}}
				w.object("n0").Status.Allocatable[gpu] = resource.MustParse("7")
				w.waits(asks(2).Obj())
			},
			want: LostGPUs, wantText: "n0: asks 2, 1 of 7 free; team/h0 holds GPU 0, which is unhealthy", wantBlockers: []string{"team/h0"},
		},
		"all GPUs are replaced under two pods": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", quad, nil).holds(t, "p1", "n0", 0, 1)
				w.holds(t, "p2", "n0", 2)
				w.replaced("n0", 0, 1, 2, 3)
				w.waits(asks(2).Obj())
			},
			want: LostGPUs, wantBlockers: []string{"team/p1"},
			wantText: "n0: asks 2, 1 of 4 free; team/p1 holds 2 GPUs that are no longer part of the node; team/p2 holds 1 GPU that is no longer part of the node",
		},
		"one GPU is replaced under a pod that has all": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", quad, nil).holds(t, "q4", "n0", 0, 1, 2, 3)
				w.replaced("n0", 3)
				w.waits(asks(1).Obj())
			},
			want: LostGPUs, wantText: "n0: asks 1, 0 of 4 free; team/q4 holds 1 GPU that is no longer part of the node", wantBlockers: []string{"team/q4"},
		},
		"a GPU is replaced under a pod, and too few are free even by the graph": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", quad, nil).holds(t, "a3", "n0", 0, 1, 2)
				w.holds(t, "z1", "n0", 3)
				w.replaced("n0", 3)
				w.waits(asks(2).Obj())
			},
			want: FewGPUs, wantText: "n0: asks 2, 0 of 4 free; team/z1 holds 1 GPU that is no longer part of the node", wantBlockers: []string{"team/a3"},
		},
		"two GPUs are partitioned, and kubelet offers as many devices as before": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				for _, i := range []int{0, 1} {
					w.topology("n0").Spec.GPUs[i].MIG = true
				}
				w.waits(asks(8).Obj())
			},
			want: WholeGPUsOnly, wantText: "2 of 8 GPUs are partitioned (MIG): whole GPUs only",
		},
		"all GPUs are partitioned, and kubelet offers the parts": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				for i := range 8 {
					w.topology("n0").Spec.GPUs[i].MIG = true
				}
				w.object("n0").Status.Allocatable[gpu] = resource.MustParse("56")
				w.waits(asks(1).Obj())
			},
			want: WholeGPUsOnly, wantText: "8 of 8 GPUs are partitioned (MIG): whole GPUs only",
		},
		"four GPUs are shared as 16 devices, and pods have all four": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", quad, nil)
				for i := range 4 {
					w.holds(t, fmt.Sprint("p", i), "n0", i)
				}
				w.object("n0").Status.Allocatable[gpu] = resource.MustParse("16")
				w.waits(asks(1).Obj())
			},
			want: WholeGPUsOnly, wantText: "kubelet offers 16 devices of 4 GPUs, which are shared: whole GPUs only", wantBlockers: []string{"team/p0"},
		},
		"a gang asks for a bandwidth that two of three empty nodes have": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil).node(t, "c0", "dgx-a100", nil)
				var members []*v1.Pod
				for _, name := range []string{"asks", "second", "third"} {
					members = append(members, pod(name, 8).Annotation(podrequest.MinBandwidthKey, "400").Obj())
				}
				w.group("train", 3, members, podrequest.AllowMixedModelsKey, "true")
			},
			want: NeverFits, wantText: "because of nvtopo.dev/min-bandwidth: 400 of the members; even if no other pod ran: room for 2 of 3 members",
			wantNext: "set nvtopo.dev/min-bandwidth to 300GB/s (kubectl -n team annotate --overwrite pod asks second third nvtopo.dev/min-bandwidth=300GB/s), with which there is room", wantWish: podrequest.MinBandwidthKey,
		},
		"one member of a gang asks for a bandwidth that no machine has, and the others for what they have": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				var members []*v1.Pod
				for i, name := range []string{"asks", "second", "third", "last"} {
					w.node(t, fmt.Sprint("h", i), hopper, nil)
					members = append(members, pod(name, 8).Annotation(podrequest.MinBandwidthKey, []string{"450GB/s", "450GB/s", "450GB/s", "900GB/s"}[i]).Obj())
				}
				w.group("train", 4, members)
			},
			want: NeverFits, wantText: "because of nvtopo.dev/min-bandwidth: 900GB/s of last (the other members ask 450GB/s); even if no other pod ran: room for 3 of 4 members",
			wantNext: "set nvtopo.dev/min-bandwidth to 450GB/s (kubectl -n team annotate --overwrite pod last nvtopo.dev/min-bandwidth=450GB/s), with which there is room",
			wantWish: podrequest.MinBandwidthKey + ": 900GB/s of last",
		},
		"two members of a gang ask for bandwidths that no machine has, and two for none": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				var members []*v1.Pod
				for i, name := range []string{"asks", "second", "third", "last"} {
					w.node(t, fmt.Sprint("h", i), hopper, nil)
					p := pod(name, 8)
					if i > 1 {
						p.Annotation(podrequest.MinBandwidthKey, []string{"800GB/s", "900GB/s"}[i-2])
					}
					members = append(members, p.Obj())
				}
				w.group("train", 4, members)
			},
			want: NeverFits, wantText: "because of nvtopo.dev/min-bandwidth: 900GB/s of last, and also of nvtopo.dev/min-bandwidth: 800GB/s of third; even",
			wantNext: "set nvtopo.dev/min-bandwidth to 450GB/s (kubectl -n team annotate --overwrite pod last third nvtopo.dev/min-bandwidth=450GB/s), with which there is room",
		},
		"members of a gang ask for a model and a memory that no machine has": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil)
				w.group("train", 2, []*v1.Pod{asks(8).Annotation(podrequest.GPUModelKey, "GB300").Obj(), pod("second", 8).Annotation(podrequest.MinGPUMemoryKey, "200Gi").Obj()})
			},
			want: NeverFits, wantText: "because of nvtopo.dev/gpu-model: GB300 of asks, and also of nvtopo.dev/min-gpu-memory: 200Gi of second; even",
			wantNext: "leave out nvtopo.dev/gpu-model and nvtopo.dev/min-gpu-memory (kubectl -n team annotate --overwrite pod asks nvtopo.dev/gpu-model-) and " +
				"(kubectl -n team annotate --overwrite pod second nvtopo.dev/min-gpu-memory-), without which there is room",
		},
		"one member of a gang selects nodes that are not there, and asks what no machine has": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, map[string]string{"zone": "a"}).node(t, "h1", hopper, map[string]string{"zone": "a"})
				other := asks(8).Annotation(podrequest.MinBandwidthKey, "900GB/s").Obj()
				other.Spec.NodeSelector = map[string]string{"zone": "b"}
				second := pod("second", 8).Obj()
				second.Spec.NodeSelector = map[string]string{"zone": "a"}
				w.group("train", 2, []*v1.Pod{other, second})
			},
			want: NeverFits, wantText: "900GB/s of asks, and also of the node selector and required node affinity of asks; even",
		},
		"the members of a gang select different nodes, none of which is there": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil)
				members := []*v1.Pod{asks(8).Obj(), pod("second", 8).Obj()}
				for i, zone := range []string{"a", "b"} {
					members[i].Spec.NodeSelector = map[string]string{"zone": zone}
				}
				w.group("train", 2, members)
			},
			want: NotSelected, wantText: "member asks: ",
		},
		"the launcher of a gang asks for memory that no machine has": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil)
				w.group("train", 3, []*v1.Pod{pod("asks", 0).Memory("2Ti").Obj(), pod("one", 8).Obj(), pod("two", 8).Obj()})
			},
			want: NeverFits, wantText: "because of 2Ti of memory of asks; even", wantNext: "ask for less memory",
		},
		"the only machine with as many free GPUs is of a model that the gang excludes": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil).node(t, "h2", hopper, nil).node(t, "l0", "l40s-8", nil)
				w.holds(t, "busy", "h2", 0)
				var members []*v1.Pod
				for _, name := range []string{"asks", "second", "third"} {
					members = append(members, pod(name, 8).Annotation(podrequest.GPUModelKey, "H100").Obj())
				}
				w.group("train", 3, members)
			},
			want: FewGPUs, wantText: "the gang asks 24 nvidia.com/gpu, and 23 are free on the nodes that it may run on",
			wantBlockers: []string{"team/busy"},
		},
		"a gang asks for a bandwidth that two machines have, and for one model": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil).node(t, "a0", "dgx-a100", nil)
				var members []*v1.Pod
				for _, name := range []string{"asks", "second", "third"} {
					members = append(members, pod(name, 8).Annotation(podrequest.MinBandwidthKey, "3200Gb/s").Obj())
				}
				w.group("train", 3, members)
			},
			want:     NeverFits,
			wantText: "because of one GPU model for all members (no nvtopo.dev/allow-mixed-models), and also of nvtopo.dev/min-bandwidth: 3200Gb/s (400 GB/s) of the members",
			wantNext: "set nvtopo.dev/allow-mixed-models to true and nvtopo.dev/min-bandwidth to 300GB/s " +
				"(kubectl -n team annotate --overwrite pod asks second third nvtopo.dev/allow-mixed-models=true nvtopo.dev/min-bandwidth=300GB/s), with which there is room when no other pod runs, run 2 members, or add nodes that have more",
		},
		"a pod asks for a bandwidth that no machine has, and a link that some have": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "p0", "l40s-8", nil).node(t, "p1", "l40s-8", nil)
				w.waits(asks(8).Annotation(podrequest.MinLinkKey, "NVLINK").Annotation(podrequest.MinBandwidthKey, "500").Obj())
			},
			want: NeverFits, wantText: "because of nvtopo.dev/min-bandwidth: 500", wantNext: "set nvtopo.dev/min-bandwidth to 450GB/s (kubectl ",
		},
		"a pod asks for more GPUs than the largest machine has": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil)
				w.waits(asks(16).Obj())
			},
			want: NeverFits, wantText: "it asks 16 nvidia.com/gpu on one node, and the largest that it may run on has 8", wantNext: "ask for at most 8 on one node", wantWish: "8 of the 16",
		},
		"a gang that has room where nodes are cordoned": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil)
				w.object("h1").Spec.Unschedulable = true
				w.group("train", 2, []*v1.Pod{asks(8).Obj(), pod("second", 8).Obj()})
			},
			want: Cordoned, wantText: "h1",
		},
		"a gang that has room where an exporter is silent": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil).silence("h1")
				w.group("train", 2, []*v1.Pod{asks(8).Obj(), pod("second", 8).Obj()})
			},
			want: StaleGraph, wantText: "h1", wantNext: "get lease exporter-h1 -o custom-columns=",
		},
		"a gang asks one NUMA node, and nobody knows on which the GPUs are": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).node(t, "n1", cube, nil)
				for _, n := range []string{"n0", "n1"} {
					for i := range w.topology(n).Spec.GPUs {
						w.topology(n).Spec.GPUs[i].NUMANode = -1
					}
				}
				w.group("train", 2, []*v1.Pod{
					asks(2).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj(), pod("second", 2).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj(),
				})
			},
			want: causeOf(placement.UnknownNUMA), wantText: "NUMA nodes of GPUs, CPUs or memory are not known",
		},
		"a gang never fits, whatever an old node without an exporter has": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil).node(t, "old", quad, nil)
				w.Topologies = w.Topologies[:2]
				var members []*v1.Pod
				for _, name := range []string{"asks", "second", "third"} {
					members = append(members, pod(name, 8).Annotation(podrequest.MinBandwidthKey, "400").Obj())
				}
				w.group("train", 3, members)
			},
			want: NeverFits, wantText: "it asks 24 nvidia.com/gpu, and the nodes that it may run on have 20",
		},
		"a gang would have room if a node had an exporter": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil)
				w.Topologies = w.Topologies[:1]
				w.group("train", 2, []*v1.Pod{asks(8).Obj(), pod("second", 8).Obj()})
			},
			want: causeOf(placement.NoGraph), wantText: "h1 may do but for this; without: room for 1 of 2 members",
		},
		"a launcher without GPUs and workers of which there is room for one": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil)
				w.group("train", 3, []*v1.Pod{asks(0).Obj(), pod("one", 8).Obj(), pod("two", 8).Obj()})
			},
			want: NeverFits, wantText: "it asks 16 nvidia.com/gpu, and the nodes that it may run on have 8",
		},
		"a launcher without GPUs, and workers for which no GPU is free": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).holds(t, "busy-0", "h0", 0, 1, 2, 3, 4, 5, 6, 7)
				w.node(t, "h1", hopper, nil).holds(t, "busy-1", "h1", 0, 1, 2, 3, 4, 5, 6, 7)
				w.group("train", 3, []*v1.Pod{asks(0).Obj(), pod("one", 8).Obj(), pod("two", 8).Obj()})
			},
			want: FewGPUs, wantText: "the gang asks 16 nvidia.com/gpu, and 0 are free on the nodes that it may run on: room for 1 of 3 members; for one member more: h0 would give it",
			wantBlockers: []string{"team/busy-0"},
		},
		"a member that a node takes, and a larger one that none takes": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).holds(t, "half-0", "h0", 0, 1, 2, 3)
				w.node(t, "h1", hopper, nil).holds(t, "half-1", "h1", 0, 1, 2, 3, 4)
				w.group("train", 2, []*v1.Pod{asks(1).Obj(), pod("one", 5).Obj()})
			},
			want: Fragmented, wantText: "7 nvidia.com/gpu are free on 2 nodes and the gang asks 6 in all: room for 1 of 2 members",
			wantBlockers: []string{"team/half-0"},
		},
		"memory that no node of the zone has, but one of another": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, map[string]string{"zone": "a"}).node(t, "n1", cube, map[string]string{"zone": "b"})
				w.object("n1").Status.Allocatable[v1.ResourceMemory] = resource.MustParse("2Ti")
				p := pod("asks", 2).Memory("1Ti").Obj()
				p.Spec.NodeSelector = map[string]string{"zone": "a"}
				w.waits(p)
			},
			want: NeverFits, wantText: "because of 1Ti of memory: without, 1 node would take it", wantNext: "ask for less memory",
		},
		"a node that is not ready": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "h0", hopper, nil).node(t, "h1", hopper, nil)
				w.object("h1").Spec.Taints = []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule}}
				w.group("train", 2, []*v1.Pod{asks(8).Obj(), pod("second", 8).Obj()})
			},
			want: NotReady, wantText: "h1", wantNext: "kubectl describe node",
		},
		"a Workload that may not be read": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil)
				w.QueuesKnown = false
				p := asks(4).Obj()
				p.Spec.SchedulingGates, p.Labels = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}, map[string]string{kueue.LabelQueue: "local"}
				w.waits(p)
			},
			want: NoQuota, wantText: "no Workload of it that you may read",
		},
		"more than the quota of the queue, of which a part may start": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).quota(t)
				p := asks(4).Obj()
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
				w.Workloads[1].Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 5, MinCount: new(int32(2)), Template: v1.PodTemplateSpec{Spec: asks(4).Obj().Spec}}}
				w.waits(p)
			},
			want: NoQuota, wantText: "insufficient unused quota",
		},
		"no nodes": {build: func(_ *testing.T, w *testEnv) { w.waits(asks(1).Obj()) }, want: NoNodes},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			tc.build(t, w)
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(append([]string{e.Reason}, e.Evidence...), "; ")
			if e.Cause != tc.want || !strings.Contains(said, tc.wantText) {
				t.Errorf("cause %s, %q\nwant %s, %q\n%+v", e.Cause, said, tc.want, tc.wantText, e)
			}
			if !strings.Contains(e.Next, tc.wantNext) {
				t.Errorf("next step %q, want %q", e.Next, tc.wantNext)
			}
			if e.Reason == "" || e.Next == "" {
				t.Errorf("reason %q, next step %q: want both", e.Reason, e.Next)
			}
			if got := blockersOf(e); !slices.Equal(got, tc.wantBlockers) {
				t.Errorf("in the way are %q, want %q\n%+v", got, tc.wantBlockers, e.Candidates)
			}
			if tc.wantWish != "" && !slices.ContainsFunc(e.Relaxations, func(r Relaxation) bool { return strings.Contains(r.Wish, tc.wantWish) && r.Nodes > 0 }) {
				t.Errorf("relaxations %+v, want one of %q", e.Relaxations, tc.wantWish)
			}
		})
	}
}

// blockersOf are the pods in the way of the nearest candidate.
func blockersOf(e *Explanation) (out []string) {
	if len(e.Candidates) > 0 {
		for _, b := range e.Candidates[0].Blockers {
			out = append(out, b.Pod)
		}
	}
	return out
}
