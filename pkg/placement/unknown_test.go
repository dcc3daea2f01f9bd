// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// forget makes a property of GPUs unknown, of all if no positions are given.
func forget(what func(d *nvtopo.GPU), positions ...int) func(*nvtopo.Graph) {
	return func(g *nvtopo.Graph) {
		for i := range g.GPUs {
			if len(positions) == 0 || slices.Contains(positions, i) {
				what(&g.GPUs[i])
			}
		}
	}
}

func numaNode(d *nvtopo.GPU) { d.NUMANode = nvtopo.UnknownNUMA }
func memory(d *nvtopo.GPU)   { d.Memory = 0 }
func model(d *nvtopo.GPU)    { d.Model = "" }

// TestUnknown: a node with an unknown property is refused as unknown, with advice, and one with a shortage
// as short. The machine has two NUMA nodes of four V100 with 32 GiB, 40 CPUs and 256 GiB.
func TestUnknown(t *testing.T) {
	pod := func(gpus int) *testobj.PodWrapper { return testobj.Pod("p").GPUs(gpus).CPU("2").Memory("1Gi") }
	single := map[string]string{podrequest.TopologyPolicyKey: "single-numa-node"}
	restricted := map[string]string{podrequest.TopologyPolicyKey: "restricted"}
	required := map[string]string{podrequest.NUMAAffinityKey: "required"}
	large, ours := map[string]string{podrequest.MinGPUMemoryKey: "20Gi"}, map[string]string{podrequest.GPUModelKey: "V100"}
	noNodes := func(g *nvtopo.Graph) { g.NUMANodes = nil }
	noSizes := func(g *nvtopo.Graph) {
		for i := range g.NUMANodes {
			g.NUMANodes[i].Memory = 0
		}
	}
	tests := map[string]struct {
		unknown func(*nvtopo.Graph)
		pod     *v1.Pod
		want    string // name of the reason
	}{
		"GPUs on one NUMA node, and none is known":    {forget(numaNode), pod(2).Annotations(single).Obj(), "UnknownNUMA"},
		"the unknown ones might be beside the others": {forget(numaNode, 0, 1), pod(6).Annotations(single).Obj(), "UnknownNUMA"},
		"wherever they are, no NUMA node has so many": {forget(numaNode, 0), pod(6).Annotations(single).Obj(), "FewInNUMA"},
		"all are known": {forget(numaNode, -1), pod(5).Annotations(single).Obj(), "FewInNUMA"},
		"one GPU is on one NUMA node, whichever it is":          {forget(numaNode), pod(1).Annotations(single).Obj(), "Fits"},
		"as few NUMA nodes as would do, if all are unknown":     {forget(numaNode), pod(2).Annotations(restricted).Obj(), "Fits"},
		"CPUs beside GPUs that nobody knows the place of":       {forget(numaNode), pod(2).Annotations(required).Obj(), "UnknownNUMA"},
		"no NUMA node has the CPUs":                             {forget(numaNode), pod(1).CPU("41").Annotations(required).Obj(), "NoNUMACPU"},
		"all NUMA nodes together have not the memory":           {forget(numaNode), pod(2).Memory("1Ti").Annotations(required).Obj(), "NoNUMAMemory"},
		"memory beside GPUs, and that of NUMA nodes is unknown": {noSizes, pod(2).Annotations(required).Obj(), "UnknownNUMA"},
		"no memory is asked":                                    {noSizes, testobj.Pod("p").GPUs(2).CPU("2").Annotations(required).Obj(), "Fits"},
		"no GPUs, and no NUMA node is known":                    {noNodes, pod(0).Annotations(required).Obj(), "UnknownNUMA"},
		"GPU memory":                                            {forget(memory), pod(1).Annotations(large).Obj(), "UnknownGPUMemory"},
		"GPU memory of one of three":                            {forget(memory, 0, 1, 2, 3, 4, 5), pod(3).Annotations(large).Obj(), "UnknownGPUMemory"},
		"GPU memory of another model":                           {forget(memory), pod(1).Annotations(large).Annotation(podrequest.GPUModelKey, "H100").Obj(), "FewSuitableGPUs"},
		"more GPU memory than the others have, and of too many": {forget(memory, 0), pod(2).Annotation(podrequest.MinGPUMemoryKey, "80Gi").Obj(), "FewSuitableGPUs"},
		"GPU memory is unknown and not asked":                   {forget(memory), pod(8).Annotations(ours).Obj(), "Fits"},
		"GPU model":                                             {forget(model), pod(1).Annotations(ours).Obj(), "UnknownGPUModel"},
		"GPU model of GPUs that are too small":                  {forget(model), pod(1).Annotations(ours).Annotation(podrequest.MinGPUMemoryKey, "80Gi").Obj(), "FewSuitableGPUs"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := podrequest.Parse(tc.pod, &podrequest.Options{
				Resources: []string{gpu}, DefaultPolicy: nvtopo.PolicyBestEffort, Supported: podrequest.AllPolicies(),
			})
			if err != nil {
				t.Fatal(err)
			}
			n := editedNode(t, "dgx1-v100", tc.unknown)
			got := Check(n.Idle, r)
			if got.Name() != tc.want {
				t.Errorf("refused for %s, want %s", got.Name(), tc.want)
			}
			if _, reason := Choose(n.Idle, r, false); reason != got {
				t.Errorf("Check says %s, and Choose %s", got.Name(), reason.Name())
			}
			if unknown := strings.HasPrefix(tc.want, "Unknown"); unknown && !strings.Contains(got.Text(r), "not known: ") {
				t.Errorf("the text is %q, which has not what is unknown and then what to do", got.Text(r))
			}
		})
	}
}

// TestUnknownNUMAOfTwoResources: devices of two kinds that are to share a NUMA node.
func TestUnknownNUMAOfTwoResources(t *testing.T) {
	const npu = "example.com/npu"
	pod := testobj.Pod("p").GPUs(1).Resource(npu, "1").Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj()
	r, err := podrequest.Parse(pod, &podrequest.Options{
		Resources: []string{gpu, npu}, DefaultPolicy: nvtopo.PolicyBestEffort, Supported: podrequest.AllPolicies(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		unknown func(*nvtopo.Graph)
		want    string // name of the reason
	}{
		"known":   {func(*nvtopo.Graph) {}, "Fits"},
		"unknown": {forget(numaNode), "UnknownNUMA"},
	} {
		t.Run(name, func(t *testing.T) {
			n := editedNode(t, "dgx1-v100", tc.unknown)
			other := *n.Accels[0]
			other.Resource = npu
			n.Accels, n.Resources = append(n.Accels, &other), append(n.Resources, npu)
			n.Complete()
			if got := Check(n.Idle, r); got.Name() != tc.want {
				t.Errorf("refused for %s, want %s", got.Name(), tc.want)
			}
		})
	}
}
