// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// wantRefused creates a pod that must stay pending for the given reason.
func (e *testEnv) wantRefused(t *testing.T, pod *v1.Pod, want string) {
	t.Helper()
	e.create(t, pod)
	// A node's graph, Lease and pods reach the scheduler one by one, and it may
	// say something else before the last of them has.
	testkit.Eventually(t, waitLimit, "pod "+pod.Name+" is refused with: "+want, func(context.Context) (bool, string) {
		got := e.refused(t, pod.Name)
		return strings.Contains(got, want), got
	})
	if got := e.get(t, pod.Name); got.Spec.NodeName != "" {
		t.Errorf("pod %s is on node %s", pod.Name, got.Spec.NodeName)
	}
	for key := range e.get(t, pod.Name).Annotations {
		if allocation.IsOutputKey(key) {
			t.Errorf("the refused pod %s has annotation %s", pod.Name, key)
		}
	}
}

// testRefusals asks a node for what it does not have.
func (e *testEnv) testRefusals(t *testing.T) {
	const cube, pcie = "dgx1-v100", "l40s-8"
	for name, tc := range map[string]struct {
		machine string
		used    []int // GPUs of the pods that are there already
		gpus    int
		notes   notes
		want    string
	}{
		"single-numa-node, more than a NUMA node has": {
			cube, nil, 5, notes{podrequest.TopologyPolicyKey: "single-numa-node"}, placement.FewInNUMA.String(),
		},
		"single-numa-node, enough but spread": {
			cube, []int{3, 3}, 2, notes{podrequest.TopologyPolicyKey: "single-numa"}, placement.FewInNUMA.String(),
		},
		"restricted, enough but spread": {
			cube, []int{3, 3}, 2, notes{podrequest.TopologyPolicyKey: "restricted"}, placement.FewInNUMA.String(),
		},
		"no NVLink at all":           {pcie, nil, 2, notes{podrequest.MinLinkKey: "NVLINK"}, "fewer free GPUs joined by NVLink than asked"},
		"no NVLink among all eight":  {cube, nil, 8, notes{podrequest.MinLinkKey: "NVLINK"}, "fewer free GPUs joined by NVLink than asked"},
		"no PIX among four":          {cube, nil, 4, notes{podrequest.MinLinkKey: "PHB", podrequest.MinBandwidthKey: "60"}, placement.LowBandwidth.String()},
		"PCIe class too good":        {pcie, nil, 8, notes{podrequest.MinLinkKey: "PIX"}, placement.FewLinked.String()},
		"bandwidth too great":        {cube, nil, 2, notes{podrequest.MinBandwidthKey: "50.1"}, placement.LowBandwidth.String()},
		"another model":              {cube, nil, 1, notes{podrequest.GPUModelKey: "H100"}, placement.FewSuitableGPUs.String()},
		"part of a model's word":     {cube, nil, 1, notes{podrequest.GPUModelKey: "V10"}, placement.FewSuitableGPUs.String()},
		"more memory than they have": {cube, nil, 1, notes{podrequest.MinGPUMemoryKey: "33Gi"}, placement.FewSuitableGPUs.String()},
		"more than are free":         {cube, []int{6}, 3, nil, "Insufficient nvidia.com/gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			node := e.freshName("short")
			e.node(t, node, tc.machine)
			for i, gpus := range tc.used {
				used := gpuPod(fmt.Sprint(node, "-used-", i), preBindProfile, gpus).NodeSelector(host(node)).Obj()
				e.create(t, used)
				e.bound(t, used.Name)
			}
			e.wantRefused(t, gpuPod(node+"-pod", bindingProfile, tc.gpus).Annotations(tc.notes).NodeSelector(host(node)).Obj(), tc.want)
		})
	}
}

// testNUMAFit asks for CPUs and memory beside the GPUs, on a machine whose two
// NUMA nodes have 4 GPUs, 40 CPUs and 256 GiB each.
func (e *testEnv) testNUMAFit(t *testing.T) {
	const machine = "dgx1-v100"
	required := notes{podrequest.NUMAAffinityKey: "required"}
	single := notes{podrequest.TopologyPolicyKey: "single-numa-node"}
	both := notes{podrequest.TopologyPolicyKey: "single-numa-node", podrequest.NUMAAffinityKey: "required"}
	preferred := notes{podrequest.NUMAAffinityKey: "preferred"}
	t.Run("refused", func(t *testing.T) {
		node := e.freshName("numa")
		e.node(t, node, machine)
		for name, tc := range map[string]struct {
			cpu, memory string
			notes       notes
			want        string
		}{
			"required, too many CPUs":                         {"41", "1Gi", required, placement.NoNUMACPU.String()},
			"required, too much memory":                       {"1", "257Gi", required, placement.NoNUMAMemory.String()},
			"required with single-numa-node, too many CPUs":   {"41", "1Gi", both, placement.NoNUMACPU.String()},
			"required with single-numa-node, too much memory": {"1", "257Gi", both, placement.NoNUMAMemory.String()},
		} {
			t.Run(name, func(t *testing.T) {
				e.wantRefused(t, gpuPod(e.freshName("numa-pod"), preBindProfile,
					1).Annotations(tc.notes).CPU(tc.cpu).Memory(tc.memory).NodeSelector(host(node)).Obj(), tc.want)
			})
		}
	})
	t.Run("single-numa-node is about GPUs, and takes CPUs from elsewhere", func(t *testing.T) {
		s := e.slot(t, e.freshName("numa"), machine)
		e.create(t, gpuPod(s.node, preBindProfile, 2).Annotations(single).CPU("48").Memory("300Gi").NodeSelector(host(s.node)).Obj())
		s.take(t, e.bound(t, s.node))
	})
	t.Run("preferred takes CPUs from elsewhere", func(t *testing.T) {
		s := e.slot(t, e.freshName("numa"), machine)
		e.create(t, gpuPod(s.node, bindingProfile, 2).Annotations(preferred).CPU("48").Memory("300Gi").NodeSelector(host(s.node)).Obj())
		s.take(t, e.bound(t, s.node))
	})
	t.Run("required spreads the GPUs where one NUMA node has too few CPUs", func(t *testing.T) {
		s := e.slot(t, e.freshName("numa"), machine)
		e.create(t, gpuPod(s.node, bindingProfile, 2).Annotations(required).CPU("41").Memory("1Gi").NodeSelector(host(s.node)).Obj())
		c := choiceOf(t, e.bound(t, s.node), s.graph)
		s.checkCPUs(t, e.get(t, s.node), c)
		var want nvtopo.Mask
		for i := range s.graph.Len() {
			for j := range i {
				set := nvtopo.MaskOf(i, j)
				if len(s.graph.NUMAOf(set)) == 2 && (want == 0 || s.oracle.Compare(s.free, set, want) < 0) {
					want = set
				}
			}
		}
		if c.set != want {
			t.Errorf("GPUs %v, want %v, the best pair with a GPU on each NUMA node", c.set.Positions(), want.Positions())
		}
	})
	t.Run("required moves to the NUMA node that has them", func(t *testing.T) {
		s := e.slot(t, e.freshName("numa"), machine)
		e.create(t, gpuPod(s.node+"-a", preBindProfile, 1).Annotations(required).CPU("30").Memory("1Gi").NodeSelector(host(s.node)).Obj())
		first := s.take(t, e.bound(t, s.node+"-a"))
		e.create(t, gpuPod(s.node+"-b", bindingProfile, 1).Annotations(required).CPU("30").Memory("1Gi").NodeSelector(host(s.node)).Obj())
		second := choiceOf(t, e.bound(t, s.node+"-b"), s.graph)
		if first.NUMANodes[0] == second.NUMANodes[0] {
			t.Errorf("both pods with 30 CPUs each are on NUMA node %v of 40 CPUs", first.NUMANodes)
		}
		s.checkCPUs(t, e.get(t, s.node+"-b"), second)
		e.wantRefused(t, gpuPod(s.node+"-c", preBindProfile,
			1).Annotations(required).CPU("11").Memory("1Gi").NodeSelector(host(s.node)).Obj(), placement.NoNUMACPU.String())
	})
}

// Nodes of testStaleNodes; they are made before the scheduler starts, so that
// it cannot have known them differently.
const (
	silentNode   = "stale-silent"   // no graph
	replacedNode = "stale-replaced" // graph of an earlier node of that name
	agedNode     = "stale-aged"     // nobody renews its Lease
)

func (e *testEnv) staleNodes(t *testing.T) {
	t.Helper()
	const machine = "dgx1-v100"
	e.addNode(t, silentNode, machine)
	for _, node := range []string{replacedNode, agedNode} {
		spec := e.addNode(t, node, machine)
		e.publishOnce(t, spec, e.graphs[node])
	}
	if err := e.client.CoreV1().Nodes().Delete(t.Context(), replacedNode, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.addNode(t, replacedNode, machine)
	err := e.client.CoordinationV1().Leases(systemNamespace).Delete(t.Context(), nodelease.ExporterPrefix+agedNode, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// testStaleNodes asks nodes whose graph is missing or does not count.
func (e *testEnv) testStaleNodes(t *testing.T) {
	for node, want := range map[string]placement.Reason{
		silentNode: placement.NoGraph, replacedNode: placement.NodeReplaced, agedNode: placement.StaleGraph,
	} {
		t.Run(node, func(t *testing.T) {
			e.wantRefused(t, gpuPod(node+"-pod", preBindProfile, 2).NodeSelector(host(node)).Obj(), want.String())
			// Policy none asks for nothing a graph could tell.
			pod := gpuPod(node+"-none", preBindProfile, 1).Annotation(podrequest.TopologyPolicyKey, "none").NodeSelector(host(node)).Obj()
			e.create(t, pod)
			e.bound(t, pod.Name)
		})
	}
}

// testOddMachines publishes machines that the catalogue does not have: two
// models in one machine, and one with broken GPUs.
func (e *testEnv) testOddMachines(t *testing.T) {
	odd := func(t *testing.T, change func(i int, d *nvtopo.GPU)) *slot {
		t.Helper()
		spec := e.addNode(t, e.freshName("odd"), "dgx1-v100")
		g := *e.graphs[spec.Name]
		g.GPUs = slices.Clone(g.GPUs)
		for i := range g.GPUs {
			change(i, &g.GPUs[i])
		}
		e.publishOnce(t, spec, &g)
		return &slot{node: spec.Name, graph: &g, oracle: oracle.New(&g), free: g.Healthy(), cpus: allCPUs(&g)}
	}
	t.Run("two models", func(t *testing.T) {
		s := odd(t, func(i int, d *nvtopo.GPU) {
			if i >= 3 {
				d.Model = "Tesla V100-SXM2-16GB"
			}
		})
		e.create(t, gpuPod(s.node+"-four", preBindProfile, 4).NodeSelector(host(s.node)).Obj())
		s.take(t, e.bound(t, s.node+"-four"))
		e.wantRefused(t, gpuPod(s.node+"-same", preBindProfile, 4).NodeSelector(host(s.node)).Obj(), placement.FewOneModel.String())
		e.create(t, gpuPod(s.node+"-mixed", bindingProfile,
			4).Annotation(podrequest.AllowMixedModelsKey, "true").NodeSelector(host(s.node)).Obj())
		s.take(t, e.bound(t, s.node+"-mixed"))
	})
	t.Run("broken GPUs", func(t *testing.T) {
		s := odd(t, func(i int, d *nvtopo.GPU) {
			if i != 0 && i != 4 && i != 6 {
				d.Unhealthy = "GPU is lost"
			}
		})
		e.create(t, gpuPod(s.node+"-two", bindingProfile, 2).NodeSelector(host(s.node)).Obj())
		s.take(t, e.bound(t, s.node+"-two"))
		e.wantRefused(t, gpuPod(s.node+"-more", bindingProfile, 2).NodeSelector(host(s.node)).Obj(), placement.FewGPUs.String())
		e.create(t, gpuPod(s.node+"-one", preBindProfile, 1).NodeSelector(host(s.node)).Obj())
		s.take(t, e.bound(t, s.node+"-one"))
	})
}

// testUnenforced uses nodes without a node agent.
func (e *testEnv) testUnenforced(t *testing.T) {
	spec := e.addNode(t, e.freshName("agentless"), "dgx1-v100")
	e.publish(t, devcluster.ExporterOptions{Unenforced: true}, spec)
	g := e.graphs[spec.Name]

	e.create(t, gpuPod(spec.Name+"-told", preBindProfile, 2).NodeSelector(host(spec.Name)).Obj())
	if c := choiceOf(t, e.bound(t, spec.Name+"-told"), g); c.Enforced {
		t.Error("the choice is marked enforced where no agent runs")
	}
	e.wantRefused(t, gpuPod(spec.Name+"-strict", agentProfile, 2).NodeSelector(host(spec.Name)).Obj(), placement.NotEnforced.String())
	trusting := gpuPod(spec.Name+"-trusting", preBindProfile, 2).NodeSelector(host(spec.Name)).Obj()
	trusting.Spec.Containers[0].Env = []v1.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", ValueFrom: &v1.EnvVarSource{
		FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + allocation.GPUIDsAlias + "']"},
	}}}
	e.wantRefused(t, trusting, placement.NotEnforced.String())

	// On an enforced node the same pods run. The first proves that the scheduler
	// has seen the agent's Lease.
	other := e.freshName("agent")
	e.node(t, other, "dgx1-v100")
	e.create(t, gpuPod(other+"-strict", agentProfile, 2).NodeSelector(host(other)).Obj())
	e.bound(t, other+"-strict")
	again := schedtest.PodFrom(trusting).NodeSelector(host(other)).Name(other).Obj()
	e.create(t, again)
	if c := choiceOf(t, e.bound(t, other), e.graphs[other]); !c.Enforced {
		t.Error("the choice is not marked enforced where an agent runs")
	}
}
