// SPDX-License-Identifier: Apache-2.0

package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the plugins.
const (
	TopologyAwareName = "TopologyAware"
	NUMAAffinityName  = "NUMAAffinity"
)

// AnnotationWrite says which write carries the choice to the pod.
type AnnotationWrite string

// The values of annotationWrite.
const (
	// WritePreBind patches the pod before it is bound.
	WritePreBind AnnotationWrite = "PreBind"
	// WriteBinding puts the annotations on the Binding, in the same write as the node name.
	WriteBinding AnnotationWrite = "Binding"
)

// UnenforcedNodes says what may run on a node without a node agent.
type UnenforcedNodes string

// The values of unenforcedNodes.
const (
	UnenforcedAllow         UnenforcedNodes = "Allow"
	UnenforcedWholeNodeOnly UnenforcedNodes = "WholeNodeOnly"
	UnenforcedRefuse        UnenforcedNodes = "Refuse"
)

// NodesWithoutTopology says whether pods may run where no GPU topology is known.
type NodesWithoutTopology string

// The values of nodesWithoutTopology.
const (
	TopologyRefuse NodesWithoutTopology = "Refuse"
	TopologyAllow  NodesWithoutTopology = "Allow"
)

// CommonArgs are the arguments both plugins have. Where both are enabled in one
// profile they must be equal; residual weights, namespace, requestTimeout and
// leaderLease must be equal in all profiles of a process.
type CommonArgs struct {
	// resources are the extended resources to choose devices for.
	Resources []string `json:"resources,omitempty"`
	// annotationWrite is PreBind (one PATCH of the pod before it is bound) or
	// Binding (no write of its own; bind.enabled must list the plugin before
	// DefaultBinder).
	AnnotationWrite AnnotationWrite `json:"annotationWrite,omitempty"`
	// writeAliases also writes scheduling.k8s.io/gpu-ids and scheduling.k8s.io/numa-node.
	WriteAliases *bool `json:"writeAliases,omitempty"`
	// namespace of the Leases of exporters, node agents and the scheduler.
	Namespace string `json:"namespace,omitempty"`
	// requestTimeout is how long the API server may still carry out a write
	// that the scheduler gave up on. Until then a failed binding keeps its devices.
	RequestTimeout metav1.Duration `json:"requestTimeout,omitempty"`
	// leaderLease is the scheduler's own Lease, looked at before every write of a
	// choice; with an empty name nothing is looked at.
	LeaderLease LeaderLease `json:"leaderLease,omitempty"`
	// residualWeights is the weight of groups of each size, "2" to "8", in the
	// residual capacity; a size that is absent keeps its default (1 for 2, 4 and 8,
	// else 0.25).
	ResidualWeights map[string]float64 `json:"residualWeights,omitempty"`
}

// LeaderLease names the Lease of the scheduler's leader election.
type LeaderLease struct {
	// name is leaderElection.resourceName; the namespace is that of the other Leases.
	Name string `json:"name,omitempty"`
	// term is how long after its last renewal the Lease is still trusted: at
	// most leaderElection.leaseDuration.
	Term metav1.Duration `json:"term,omitempty"`
}

// TopologyAwareArgs are the arguments of TopologyAware.
//
// +kubebuilder:object:root=true
type TopologyAwareArgs struct {
	metav1.TypeMeta `json:",inline"`
	CommonArgs      `json:",inline"`

	// supportedPolicies are the values pods may ask for: none, best-effort,
	// restricted, single-numa-node.
	SupportedPolicies []string `json:"supportedPolicies,omitempty"`
	// defaultPolicy is that of a pod which asks for none.
	DefaultPolicy string `json:"defaultPolicy,omitempty"`
	// bandwidthWeight, latencyWeight and fragmentationWeight are the shares of
	// ring bandwidth, latency and residual capacity in a node's score.
	BandwidthWeight     *float64 `json:"bandwidthWeight,omitempty"`
	LatencyWeight       *float64 `json:"latencyWeight,omitempty"`
	FragmentationWeight *float64 `json:"fragmentationWeight,omitempty"`
	// unenforcedNodes is what may run on a node without a node agent: Allow,
	// WholeNodeOnly or Refuse.
	UnenforcedNodes UnenforcedNodes `json:"unenforcedNodes,omitempty"`
	// nodesWithoutTopology is Refuse, or Allow for pods without hard demands.
	// Pods with policy none may always run there.
	NodesWithoutTopology NodesWithoutTopology `json:"nodesWithoutTopology,omitempty"`
}

// NUMAAffinityArgs are the arguments of NUMAAffinity.
//
// +kubebuilder:object:root=true
type NUMAAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	CommonArgs      `json:",inline"`

	// sameNUMABonus is added to a node's score where GPUs, CPUs and memory of the
	// choice lie in one NUMA node.
	SameNUMABonus *int64 `json:"sameNUMABonus,omitempty"`
	// crossNUMAPenalty is taken off for every further NUMA node the choice spans.
	CrossNUMAPenalty *int64 `json:"crossNUMAPenalty,omitempty"`
	// defaultAffinity is that of a pod which asks for none: none, preferred, required.
	DefaultAffinity string `json:"defaultAffinity,omitempty"`
	// cpuset chooses CPUs and writes them.
	CPUSet *bool `json:"cpuset,omitempty"`
}
