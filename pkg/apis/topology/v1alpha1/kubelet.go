// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// Kubelet is the part of the kubelet's configuration that decides admission.
type Kubelet struct {
	// version of the kubelet, as the Node's status.nodeInfo.kubeletVersion has it. By it the scheduler
	// predicts how devices are aligned: from 1.36 on the hints of the device manager name only NUMA nodes
	// that have such devices. Absent: predicted as before 1.36.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	Version string `json:"version,omitempty"`
	// topologyManagerPolicy of the kubelet.
	// +kubebuilder:validation:Enum=none;best-effort;restricted;single-numa-node
	TopologyManagerPolicy string `json:"topologyManagerPolicy"`
	// scope of the topology manager.
	// +optional
	// +kubebuilder:validation:Enum=container;pod
	Scope string `json:"scope,omitempty"`
	// cpuManagerPolicy of the kubelet.
	// +optional
	// +kubebuilder:validation:Enum=none;static
	CPUManagerPolicy string `json:"cpuManagerPolicy,omitempty"`
	// memoryManagerPolicy of the kubelet.
	// +optional
	// +kubebuilder:validation:Enum=None;Static
	MemoryManagerPolicy string `json:"memoryManagerPolicy,omitempty"`
	// reservedCPUs are not given to pods, in the kernel's list format.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
	// topologyManagerOptions are the policy's options as configured, for example prefer-closest-numa-nodes: "true".
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 128 && size(self[k]) <= 128)",message="options of at most 128 characters each"
	TopologyManagerOptions map[string]string `json:"topologyManagerOptions,omitempty"`
	// cpuManagerOptions are the policy's options as configured, for example full-pcpus-only: "true".
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 128 && size(self[k]) <= 128)",message="options of at most 128 characters each"
	CPUManagerOptions map[string]string `json:"cpuManagerOptions,omitempty"`
	// exclusiveCPUs are given to single containers now, in the kernel's list format;
	// known only under cpuManagerPolicy static.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`
	ExclusiveCPUs string `json:"exclusiveCPUs,omitempty"`
	// exclusiveCPUsProblem is why exclusiveCPUs are not known under cpuManagerPolicy static: the CPU
	// manager's state cannot be read. The scheduler then goes by what the node's pods ask for, and does not
	// predict the kubelet's choice of CPUs.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	ExclusiveCPUsProblem string `json:"exclusiveCPUsProblem,omitempty"`
	// memory is the memory manager's account of each NUMA node; known only under
	// memoryManagerPolicy Static.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.map(m, has(m.cells) ? size(m.cells) : 0).sum() <= 1296",message="memory: at most 1296 cells in all"
	// +kubebuilder:validation:XValidation:rule="size(self.transformMapEntry(i, m, {m.numaNode: i})) == size(self)",message="memory: numaNode must be unique"
	Memory []KubeletMemory `json:"memory,omitempty"`
	// unalignedResources are the resources whose NUMA nodes the node agent hides from kubelet, so that its
	// topology manager does not align them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	UnalignedResources []string `json:"unalignedResources,omitempty"`
}

// KubeletMemory is one NUMA node in the memory manager's account.
type KubeletMemory struct {
	// numaNode is the kernel's number of the node.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1023
	NUMANode int32 `json:"numaNode"`
	// allocatable is what Guaranteed pods may be given of it in all.
	Allocatable resource.Quantity `json:"allocatable"`
	// free is what is left of that.
	Free resource.Quantity `json:"free"`
	// cells are the NUMA nodes it is grouped with by a pod that spans several; itself alone when absent.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Cells []int32 `json:"cells,omitempty"`
}
