// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeGPUTopology is the GPU link graph of the node it is named after.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=nodegputopologies,singular=nodegputopology,shortName=ngt
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.summary.gpus`
// +kubebuilder:printcolumn:name="Interconnect",type=string,JSONPath=`.status.summary.interconnect`
// +kubebuilder:printcolumn:name="NUMA nodes",type=integer,JSONPath=`.status.summary.numaNodes`
// +kubebuilder:printcolumn:name="Healthy",type=integer,JSONPath=`.status.summary.healthy`
// +kubebuilder:printcolumn:name="Degraded",type=integer,JSONPath=`.status.summary.degraded`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Stale",type=string,JSONPath=`.status.conditions[?(@.type=="Stale")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeGPUTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeGPUTopologySpec   `json:"spec"`
	Status NodeGPUTopologyStatus `json:"status,omitempty"`
}

// NodeGPUTopologyList is a list of NodeGPUTopology.
//
// +kubebuilder:object:root=true
type NodeGPUTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeGPUTopology `json:"items"`
}

// NodeGPUTopologySpec is what the exporter read from the hardware.
//
// +kubebuilder:validation:XValidation:rule="self.numaNodes.all(n, !has(n.threadsPerCore) || !has(n.siblings) || size(n.siblings) == 0)",fieldPath=".numaNodes",message="numaNodes: siblings must be absent beside threadsPerCore"
// +kubebuilder:validation:XValidation:rule="(has(self.linkRows) ? size(self.linkRows) : 0) == (size(self.gpus) == 0 ? 0 : size(self.gpus) - 1)",fieldPath=".linkRows",message="linkRows: one row is needed for each of gpus but the last"
// +kubebuilder:validation:XValidation:rule="[self.numaNodes.map(n, n.id) + [-1]].all(known, self.gpus.all(g, g.numaNode in known))",fieldPath=".gpus",message="gpus: numaNode must be -1 or the id of one of numaNodes"
// +kubebuilder:validation:XValidation:rule="self.numaNodes.all(n, !has(n.distances) || size(n.distances) == 0 || size(n.distances) == size(self.numaNodes))",fieldPath=".numaNodes",message="numaNodes: distances must have one entry for each of numaNodes"
// +kubebuilder:validation:XValidation:rule="!has(self.nics) || self.nics.all(n, !has(n.distances) || size(n.distances) == 0 || size(n.distances) == size(self.gpus))",fieldPath=".nics",message="nics: distances must have one entry for each of gpus"
type NodeGPUTopologySpec struct {
	// nodeUID is the UID of the Node this graph was read on. The graph counts
	// only while the Node of this name has that UID.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	NodeUID types.UID `json:"nodeUID"`
	// bootID is the Node's boot id (status.nodeInfo.bootID) at the time of reading.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	BootID string `json:"bootID,omitempty"`
	// gpus lists the accelerators, each with its UUID.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="size(self.transformMapEntry(i, g, {g.id: i})) == size(self)",message="gpus: id must be unique"
	// +kubebuilder:validation:XValidation:rule="size(self.transformMapEntry(i, g, {g.index: i})) == size(self)",message="gpus: index must be unique"
	GPUs []GPU `json:"gpus"`
	// numaNodes lists the NUMA nodes of the machine.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="size(self.transformMapEntry(i, n, {n.id: i})) == size(self)",message="numaNodes: id must be unique"
	// +kubebuilder:validation:XValidation:rule="self.map(n, has(n.siblings) ? size(n.siblings) : 0).sum() <= 512",message="numaNodes: at most 512 siblings in all"
	NUMANodes []NUMANode `json:"numaNodes"`
	// linkKinds are the kinds of path that linkRows names.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	LinkKinds []LinkKind `json:"linkKinds,omitempty"`
	// linkRows has the links of gpus, the matrix above its diagonal: for each of gpus but the
	// last a row with the kinds of its paths to the GPUs after it, in their order and with
	// a blank between; "-" between GPUs of two resources.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=63
	// +kubebuilder:validation:items:MaxLength=1071
	LinkRows []string `json:"linkRows,omitempty"`
	// nics lists the RDMA-capable network adapters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="size(self.transformMapEntry(i, n, {n.name: i})) == size(self)",message="nics: name must be unique"
	// +kubebuilder:validation:XValidation:rule="self.map(n, has(n.distances) ? size(n.distances) : 0).sum() <= 512",message="nics: at most 512 distances in all"
	NICs []NIC `json:"nics,omitempty"`
}

// GPU is one accelerator.
type GPU struct {
	// id is the vendor's UUID, the name under which the device plugin knows it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=96
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`
	ID string `json:"id"`
	// index is the number the vendor's tool prints for it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Index int32 `json:"index"`
	// resource is the extended resource it is counted under.
	// +optional
	// +kubebuilder:default="nvidia.com/gpu"
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[a-z0-9.-]+/[A-Za-z0-9._-]+$`
	Resource string `json:"resource,omitempty"`
	// pciBusID is domain:bus:device.function.
	// +optional
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{4}|[0-9a-f]{8}):[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`
	PCIBusID string `json:"pciBusID,omitempty"`
	// model is the product name, for example "NVIDIA H100 80GB HBM3".
	// +optional
	// +kubebuilder:validation:MaxLength=96
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	Model string `json:"model,omitempty"`
	// memory is the size of its memory; 0 or absent when unknown.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// numaNode is the NUMA node of the CPUs nearest to it, -1 when unknown.
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:validation:Maximum=1023
	NUMANode int32 `json:"numaNode"`
	// cpus is its CPU affinity in the kernel's list format.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`
	CPUs string `json:"cpus,omitempty"`
	// mig says that it is partitioned and cannot be given out whole.
	// +optional
	MIG bool `json:"mig,omitempty"`
	// slices are the parts of a partitioned GPU; absent when they are not known.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Slices []Slice `json:"slices,omitempty"`
}

// Slice is a part of a partitioned GPU. It has its GPU's place, and no links.
type Slice struct {
	// id is the UUID of the MIG device.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=96
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._/:-]*$`
	ID string `json:"id"`
	// profile as NVIDIA's tools name it, for example 1g.10gb; pods ask for nvidia.com/mig-1g.10gb.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9a-z.]+$`
	Profile string `json:"profile"`
}

// NUMANode is one NUMA node of the machine.
type NUMANode struct {
	// id is the kernel's number of the node.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1023
	ID int32 `json:"id"`
	// cpus of the node in the kernel's list format; empty for a memory-only node.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`
	CPUs string `json:"cpus,omitempty"`
	// siblings lists each core's hyper-threads in the kernel's list format, where threadsPerCore
	// cannot describe them; absent when unknown.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=64
	Siblings []string `json:"siblings,omitempty"`
	// threadsPerCore is for nodes that count evenly: cpus in ascending order are that many runs
	// of equal length, and the n-th of all runs are one core's; absent when unknown.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	ThreadsPerCore int32 `json:"threadsPerCore,omitempty"`
	// memory is the node's memory.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// distances is the node's row of the SLIT, in the order of numaNodes; absent where there are more than 36 of these.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=36
	// +kubebuilder:validation:items:Minimum=10
	// +kubebuilder:validation:items:Maximum=255
	Distances []int32 `json:"distances,omitempty"`
}

// LinkKind is a path between two GPUs of one resource, as several pairs of a machine have it.
type LinkKind struct {
	// name by which linkRows refers to it, for example NV2/PHB.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9./]*$`
	Name string `json:"name"`
	// class is the best path as `nvidia-smi topo -m` names it, without the number of links for a fabric.
	// +kubebuilder:validation:Enum=NVLink;XGMI;HCCS;PIX;PXB;PHB;NODE;SYS
	Class string `json:"class"`
	// lanes is the number of fabric links; 0 or absent for a PCIe path.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	Lanes int32 `json:"lanes,omitempty"`
	// bandwidth in bytes per second and one direction, for example 300G.
	Bandwidth resource.Quantity `json:"bandwidth"`
	// latencyNanoseconds of the path; absent means the published constant of the class.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	LatencyNanoseconds int64 `json:"latencyNanoseconds,omitempty"`
	// pcie is the PCIe level of the pair, absent when unknown.
	// +optional
	// +kubebuilder:validation:Enum=PIX;PXB;PHB;NODE;SYS
	PCIe string `json:"pcie,omitempty"`
	// switched says that the fabric path goes through a switch.
	// +optional
	Switched bool `json:"switched,omitempty"`
}

// NIC is a network adapter with its PCIe level to each GPU.
type NIC struct {
	// name of the RDMA device, for example mlx5_0.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	Name string `json:"name"`
	// numaNode of the adapter, -1 when unknown.
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:validation:Maximum=1023
	NUMANode int32 `json:"numaNode"`
	// distances is the PCIe level to each of gpus, in their order; "" when unknown.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Enum=PIX;PXB;PHB;NODE;SYS;""
	Distances []string `json:"distances,omitempty"`
}

// Condition types of a NodeGPUTopology.
const (
	// ConditionReady is true while the exporter reads the hardware without an error.
	ConditionReady = "Ready"
	// ConditionEnforced is true while the node's agent makes containers get the chosen GPUs.
	ConditionEnforced = "Enforced"
	// ConditionStale is true while the scheduler does not choose by the graph, because
	// nobody vouches for it; its reason says why. The scheduler writes it.
	ConditionStale = "Stale"
	// ConditionCordonAcknowledged is true once the scheduler has no pod with devices on its way to the
	// node, and sends none there, as long as the cordon lasts that the message names; see CordonMessage.
	// The scheduler writes it.
	ConditionCordonAcknowledged = "CordonAcknowledged"
	// ConditionPinned is true while the node's agent confines GPU containers to the
	// CPUs and memory of their GPUs' NUMA nodes; its reason says why it does not.
	ConditionPinned = "Pinned"
)

// States of an Allocation.
const (
	// StateConfirmed: kubelet recorded what the scheduler chose.
	StateConfirmed = "confirmed"
	// StateSwapped: kubelet gave it the choice of another container or pod of the node, and that one its.
	StateSwapped = "swapped"
	// StateReassigned: kubelet recorded other devices than the scheduler chose.
	StateReassigned = "reassigned"
	// StateForeign: no scheduler of ours chose for the pod.
	StateForeign = "foreign"
)

// NodeGPUTopologyStatus is what changes without the graph changing.
type NodeGPUTopologyStatus struct {
	// conditions: Ready by the exporter, Enforced and Pinned by the node agent, Stale and CordonAcknowledged by the scheduler.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.message) <= 2048)",message="conditions: message of at most 2048 characters"
	// +kubebuilder:validation:items:XValidation:rule=`!self.message.matches(r'[\x00-\x08\x0b-\x1f\x7f-\x9f]')`,message="message: want no control characters but line feeds and tabs"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// summary is spec in a few words, for people and printer columns.
	// +optional
	Summary *Summary `json:"summary,omitempty"`
	// gpuHealth lists the health of each GPU; one that is absent is healthy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="size(self.transformMapEntry(i, h, {h.id: i})) == size(self)",message="gpuHealth: id must be unique"
	GPUHealth []GPUHealth `json:"gpuHealth,omitempty"`
	// kubelet is how the node's kubelet aligns resources; absent when unknown.
	// +optional
	Kubelet *Kubelet `json:"kubelet,omitempty"`
	// allocations is what kubelet has really recorded.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:XValidation:rule="self.map(a, size(a.gpus)).sum() <= 512",message="allocations: at most 512 gpus in all"
	// +kubebuilder:validation:XValidation:rule="self.map(a, has(a.cpus) ? size(a.cpus) : 0).sum() <= 32768",message="allocations: cpus of at most 32768 characters in all"
	// +kubebuilder:validation:XValidation:rule="size(self.transformMapEntry(i, a, {a.podUID + ' ' + a.container + ' ' + a.resource: i})) == size(self)",message="allocations: podUID, container and resource must be unique together"
	Allocations []Allocation `json:"allocations,omitempty"`
}

// Summary is the graph in a few words.
type Summary struct {
	// gpus is how many there are.
	GPUs int32 `json:"gpus"`
	// healthy is how many may be given out whole.
	Healthy int32 `json:"healthy"`
	// degraded is how many of those only by themselves.
	// +optional
	Degraded int32 `json:"degraded,omitempty"`
	// numaNodes is how many NUMA nodes have CPUs.
	NUMANodes int32 `json:"numaNodes"`
	// interconnect is the best link class on the node and, for a fabric such as NVLink, which
	// GPUs it joins, for example NV18 all, NV12 pairs, NV6 groups of 4, or NV2 some: not every
	// two of a group by as many links.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	Interconnect string `json:"interconnect"`
}

// GPUHealth is the health of one GPU.
type GPUHealth struct {
	// id is the GPU's UUID.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=96
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	ID string `json:"id"`
	// healthy says that pods may use it.
	Healthy bool `json:"healthy"`
	// degraded says that pods may use it only by itself, never together with other
	// GPUs: it computes, but its links must not be relied on. Only of a healthy GPU.
	// +optional
	Degraded bool `json:"degraded,omitempty"`
	// reason says why it is not healthy, or degraded; for example "GPU is lost: …".
	// What stands before a colon is one of the texts documented in docs/exporter.md.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	Reason string `json:"reason,omitempty"`
	// since is when it came to be so; absent while it is healthy and not degraded.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// Allocation is what kubelet recorded for one container and resource.
type Allocation struct {
	// podUID of the pod.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	PodUID types.UID `json:"podUID"`
	// namespace of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	Namespace string `json:"namespace,omitempty"`
	// pod is its name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	Pod string `json:"pod,omitempty"`
	// container is the container's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	Container string `json:"container"`
	// resource the devices are counted under.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	Resource string `json:"resource"`
	// gpus are the devices' UUIDs.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=96
	// +kubebuilder:validation:items:Pattern=`^[^\x00-\x1f\x7f-\x9f]*$`
	GPUs []string `json:"gpus"`
	// cpus the container is confined to, in the kernel's list format: by the agent's
	// pinning, or exclusively by kubelet's CPU manager; absent when it is not.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$`
	CPUs string `json:"cpus,omitempty"`
	// state compares them with the scheduler's choice.
	// +kubebuilder:validation:Enum=confirmed;swapped;reassigned;foreign
	State string `json:"state"`
}
