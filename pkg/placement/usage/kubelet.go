// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
)

// Kubelet is a node's kubelet beside the graph: its settings, and its last published account of exclusive
// CPUs and memory. Immutable.
type Kubelet struct {
	Machine *kubeletadmission.Machine
	empty   kubeletadmission.State // with nothing allocated
	account kubeletadmission.State // as published
	// exclusive are the CPUs that are exclusive to single containers now.
	exclusive nvtopo.CPUSet
	memory    map[int]kubeletadmission.Memory // NUMA node id -> the memory manager's account
	Kind      uint64                          // equal for kubelets with equal decisions on one machine
	// pinsCPUs and pinsMemory: Guaranteed pods' CPUs and memory are in the account.
	pinsCPUs, pinsMemory bool
}

// deviceNodesFrom is the first kubelet whose device hints name only NUMA nodes that have such devices
// (kubernetes#138244). A distribution may have the same change in an older one, which is then predicted
// wrongly.
var deviceNodesFrom = version.MajorMinor(1, 36)

// deviceNodes reports whether the kubelet's device hints name only NUMA nodes that have such devices.
// Without a version, as older agents publish it, they do not.
func deviceNodes(k *v1alpha1.Kubelet) bool {
	v, err := version.ParseGeneric(k.Version)
	return err == nil && v.AtLeast(deviceNodesFrom)
}

// sameSocket is the SLIT distance from which on two NUMA nodes are assumed to be on different processors:
// firmware gives neighbours on one 11 or 12, others 20 to 32.
const sameSocket = 20

// NewKubelet reads status.kubelet; it returns nil if kubelet aligns nothing, and if its decision cannot be
// predicted, because of its options or because its exclusive CPUs are not known (Tighten is used instead).
func NewKubelet(n *Node, k *v1alpha1.Kubelet) (*Kubelet, error) {
	exclusive, err := nvtopo.ParseCPUList(k.ExclusiveCPUs)
	if err != nil {
		return nil, fmt.Errorf("exclusiveCPUs: %w", err)
	}
	policy, err := kubeletadmission.ParsePolicy(k.TopologyManagerPolicy)
	if err != nil {
		return nil, fmt.Errorf("topologyManagerPolicy: %w", err)
	}
	out := &Kubelet{exclusive: exclusive, pinsCPUs: n.StaticCPUs, pinsMemory: k.MemoryManagerPolicy == "Static" && len(k.Memory) > 0}
	if n.StaticCPUs && k.ExclusiveCPUsProblem != "" {
		return nil, nil // only the pods' requests are known of their CPUs
	}
	machine, err := kubeletadmission.New(&kubeletadmission.Config{
		Policy: policy, PodScope: k.Scope == "pod", StaticCPUs: n.StaticCPUs, StaticMemory: out.pinsMemory,
		TopologyOptions: k.TopologyManagerOptions, CPUOptions: k.CPUManagerOptions, ReservedCPUs: n.ReservedCPUs,
		DeviceNodes: deviceNodes(k),
	}, admissionNodes(n.NUMA), admissionResources(n, k.UnalignedResources))
	if err != nil || machine.Idle() {
		return nil, nil //nolint:nilerr // a newer kubelet's options must not take the node's graph away
	}
	out.Machine = machine
	out.memory = map[int]kubeletadmission.Memory{}
	full := map[int]kubeletadmission.Memory{}
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
		account := kubeletadmission.Memory{Free: free, Allocatable: allocatable}
		for _, c := range m.Cells {
			account.Cells = append(account.Cells, int(c))
		}
		out.memory[int(m.NUMANode)] = account
		full[int(m.NUMANode)] = kubeletadmission.Memory{Free: account.Allocatable, Allocatable: account.Allocatable}
	}
	out.empty, out.account = machine.NewState(nil, full), machine.NewState(exclusive, out.memory)
	return out, nil
}

// emptied returns the kubelet with nothing allocated.
func (k *Kubelet) emptied() *Kubelet {
	out := *k
	out.account, out.exclusive, out.memory = k.empty, nil, map[int]kubeletadmission.Memory{}
	for id, m := range k.memory {
		out.memory[id] = kubeletadmission.Memory{Free: m.Allocatable, Allocatable: m.Allocatable}
	}
	return &out
}

// Pins reports whether the account has the CPUs or memory of Guaranteed pods.
func (k *Kubelet) Pins() bool { return k != nil && (k.pinsCPUs || k.pinsMemory) }

// mayRefuse reports whether the order of pods may decide which of them kubelet admits.
func (k *Kubelet) mayRefuse() bool { return k.Pins() || k.Machine.Strict() }

// exclude removes from a pod's share the amounts that the account covers.
func (k *Kubelet) exclude(pod *kubeletadmission.Pod, p *share) {
	if k.pinsCPUs {
		p.milliCPU = max(0, p.milliCPU-1000*int64(pod.CPUs()))
	}
	if k.pinsMemory {
		p.memory = 0
	}
}

// replay takes the resources that kubelet will set aside for a pod it has yet to admit.
func (k *Kubelet) replay(n *Node, state *kubeletadmission.State, l *unadmitted) {
	wish := &kubeletadmission.Wish{}
	if l.alloc != nil {
		wish.Parts = make([]kubeletadmission.Part, len(l.pod.Containers))
		for i := range l.alloc.Containers {
			ca := &l.alloc.Containers[i]
			at := slices.Index(l.names, ca.Name)
			ai := slices.IndexFunc(n.Accels, func(a *Accel) bool { return a.Resource == ca.Resource })
			if at >= 0 && ai >= 0 {
				wish.Parts[at][ai], _ = n.Accels[ai].Graph.Positions(ca.GPUs)
			}
		}
	}
	if k.Machine.Replay(state, l.pod, wish) || l.alloc == nil {
		return
	}
	// It was not chosen by this forecast; its CPUs are used in any case.
	k.Machine.Replay(state, l.pod, &kubeletadmission.Wish{})
}

// left returns the free amounts of the NUMA nodes according to the account.
func (k *Kubelet) left(n *Node) []NUMAFree {
	out := slices.Clone(n.capacity)
	for i := range out {
		nn := &n.NUMA.NUMANodes[i]
		if k.pinsCPUs {
			out[i].MilliCPU = 1000 * int64(k.Machine.FreeCPUs(&k.account, nn.ID))
		}
		if m, ok := k.memory[nn.ID]; ok && k.pinsMemory {
			out[i].Memory = m.Free
		}
	}
	return out
}

// SettingsOf is equal for kubelets with equal decisions.
func SettingsOf(k *v1alpha1.Kubelet) string {
	return fmt.Sprint(k.TopologyManagerPolicy, k.Scope, k.CPUManagerPolicy, k.MemoryManagerPolicy,
		k.TopologyManagerOptions, k.CPUManagerOptions, k.UnalignedResources, k.TopologyManagerPolicy == "best-effort" && deviceNodes(k), k.ExclusiveCPUsProblem != "")
}

func admissionNodes(g *nvtopo.Graph) []kubeletadmission.Node {
	out := make([]kubeletadmission.Node, len(g.NUMANodes))
	for i := range g.NUMANodes {
		nn := &g.NUMANodes[i]
		out[i] = kubeletadmission.Node{ID: nn.ID, CPUs: nn.CPUs, Siblings: nn.Siblings, Socket: nn.ID, Distances: nn.Distances}
		for j := range i {
			if g.NUMADistance(nn.ID, g.NUMANodes[j].ID) < sameSocket {
				out[i].Socket = out[j].Socket
				break
			}
		}
	}
	return out
}

func admissionResources(n *Node, unaligned []string) []kubeletadmission.Resource {
	var out []kubeletadmission.Resource
	for _, a := range n.Accels {
		r := kubeletadmission.Resource{}
		for i := range a.Graph.GPUs {
			d := &a.Graph.GPUs[i]
			if !d.MIG { // a partitioned GPU is not among the plugin's whole devices
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
