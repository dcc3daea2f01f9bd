// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/admission"
)

// kubelet is what is known of a node's kubelet beside the graph: how it decides,
// and its account of exclusive CPUs and memory as last published. Immutable.
type kubelet struct {
	machine *admission.Machine
	empty   admission.State // nothing given to anybody
	account admission.State // as published
	// exclusive are the CPUs that single containers have now.
	exclusive nvtopo.CPUSet
	memory    map[int]admission.Memory // NUMA node id -> the memory manager's account
	kind      uint64                   // equal for kubelets that decide alike on one machine
	// pinsCPUs and pinsMemory: Guaranteed pods' CPUs and memory are in the account.
	pinsCPUs, pinsMemory bool
}

// sameSocket is the SLIT distance from which on two NUMA nodes are taken to be on
// different processors: firmware gives neighbours on one 11 or 12, others 20 to 32.
const sameSocket = 20

// newKubelet reads status.kubelet; nil where kubelet aligns nothing, and where it is
// configured in a way that cannot be predicted (Tighten then has to do).
func newKubelet(n *Node, k *v1alpha1.Kubelet) (*kubelet, error) {
	exclusive, err := nvtopo.ParseCPUList(k.ExclusiveCPUs)
	if err != nil {
		return nil, fmt.Errorf("exclusiveCPUs: %w", err)
	}
	policy, err := admission.ParsePolicy(k.TopologyManagerPolicy)
	if err != nil {
		return nil, fmt.Errorf("topologyManagerPolicy: %w", err)
	}
	out := &kubelet{exclusive: exclusive, pinsCPUs: n.StaticCPUs, pinsMemory: k.MemoryManagerPolicy == "Static" && len(k.Memory) > 0}
	machine, err := admission.New(&admission.Config{
		Policy: policy, PodScope: k.Scope == "pod", StaticCPUs: n.StaticCPUs, StaticMemory: out.pinsMemory,
		TopologyOptions: k.TopologyManagerOptions, CPUOptions: k.CPUManagerOptions, ReservedCPUs: n.ReservedCPUs,
	}, admissionNodes(n.NUMA), admissionResources(n, k.UnalignedResources))
	if err != nil || machine.Idle() {
		return nil, nil //nolint:nilerr,nilnil // a newer kubelet's options must not take the node's graph away
	}
	out.machine = machine
	out.memory = map[int]admission.Memory{}
	full := map[int]admission.Memory{}
	for i := range k.Memory {
		m := &k.Memory[i]
		free, err := v1alpha1.MemoryOf(&m.Free)
		if err != nil {
			return nil, fmt.Errorf("memory[%d].free: %w", i, err)
		}
		allocatable, err := v1alpha1.MemoryOf(&m.Allocatable)
		if err != nil {
			return nil, fmt.Errorf("memory[%d].allocatable: %w", i, err)
		}
		account := admission.Memory{Free: free, Allocatable: allocatable}
		for _, c := range m.Cells {
			account.Cells = append(account.Cells, int(c))
		}
		out.memory[int(m.NUMANode)] = account
		full[int(m.NUMANode)] = admission.Memory{Free: account.Allocatable, Allocatable: account.Allocatable}
	}
	out.empty, out.account = machine.NewState(nil, full), machine.NewState(exclusive, out.memory)
	return out, nil
}

// settingsOf is equal for kubelets that decide alike.
func settingsOf(k *v1alpha1.Kubelet) string {
	return fmt.Sprint(k.TopologyManagerPolicy, k.Scope, k.CPUManagerPolicy, k.MemoryManagerPolicy,
		k.TopologyManagerOptions, k.CPUManagerOptions, k.UnalignedResources)
}

func admissionNodes(g *nvtopo.Graph) []admission.Node {
	out := make([]admission.Node, len(g.NUMANodes))
	for i := range g.NUMANodes {
		nn := &g.NUMANodes[i]
		out[i] = admission.Node{ID: nn.ID, CPUs: nn.CPUs, Siblings: nn.Siblings, Socket: nn.ID, Distances: nn.Distances}
		for j := range i {
			if g.NUMADistance(nn.ID, g.NUMANodes[j].ID) < sameSocket {
				out[i].Socket = out[j].Socket
				break
			}
		}
	}
	return out
}

func admissionResources(n *Node, unaligned []string) []admission.Resource {
	var out []admission.Resource
	for _, a := range n.Accels {
		r := admission.Resource{}
		for i := range a.Graph.GPUs {
			d := &a.Graph.GPUs[i]
			if !d.MIG { // what is partitioned is not among the plugin's whole devices
				r.All |= 1 << i
			}
			r.NUMA = append(r.NUMA, d.NUMANode)
		}
		for _, name := range unaligned {
			r.Unaligned = r.Unaligned || name == a.Resource
		}
		out = append(out, r)
	}
	return out
}
