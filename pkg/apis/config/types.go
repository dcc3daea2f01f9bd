// SPDX-License-Identifier: Apache-2.0

package config

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Names of the plugins in a KubeSchedulerConfiguration. The kind of a plugin's
// arguments is its name followed by "Args".
const (
	TopologyAwareName = "TopologyAware"
	NUMAAffinityName  = "NUMAAffinity"
	GangPlacementName = "GangPlacement"
	FairSortName      = "FairSort" // has no arguments
)

// AnnotationWrite says how a pod's annotations reach the API server.
type AnnotationWrite string

// The ways to write annotations.
const (
	// AnnotationWritePreBind writes them in one PATCH of the pod before it is bound.
	AnnotationWritePreBind AnnotationWrite = "PreBind"
	// AnnotationWriteBinding sends them with the Binding, which saves a request.
	// The profile must enable the plugin at bind, before DefaultBinder.
	AnnotationWriteBinding AnnotationWrite = "Binding"
)

// UnenforcedNodes says what to do with a node whose agent does not make
// containers get the GPUs that were chosen.
type UnenforcedNodes string

// The treatments of unenforced nodes.
const (
	// UnenforcedNodesAllow uses them; the pod's allocation is marked unenforced.
	UnenforcedNodesAllow UnenforcedNodes = "Allow"
	// UnenforcedNodesWholeNodeOnly uses them for pods that take all their GPUs.
	UnenforcedNodesWholeNodeOnly UnenforcedNodes = "WholeNodeOnly"
	// UnenforcedNodesRefuse keeps GPU pods off them.
	UnenforcedNodesRefuse UnenforcedNodes = "Refuse"
)

// SingleGPUs says where pods of one GPU go.
type SingleGPUs string

// The ways of single GPUs.
const (
	// SingleGPUsSlowLinks sends them to the machines whose links are slowest.
	SingleGPUsSlowLinks SingleGPUs = "SlowLinks"
	// SingleGPUsLeastLost sends them where they take the least share of a machine from others.
	SingleGPUsLeastLost SingleGPUs = "LeastLost"
	// SingleGPUsSlowGPUs sends them to the GPUs that compute slowest.
	SingleGPUsSlowGPUs SingleGPUs = "SlowGPUs"
)

// NodesWithoutTopology says what to do with a node that has GPUs but no valid,
// fresh NodeGPUTopology.
type NodesWithoutTopology string

// The treatments of nodes without a graph.
const (
	// NodesWithoutTopologyRefuse keeps GPU pods off them until a graph appears.
	NodesWithoutTopologyRefuse NodesWithoutTopology = "Refuse"
	// NodesWithoutTopologyAllow lets pods that ask for nothing about links run
	// there, counted but without chosen GPUs.
	NodesWithoutTopologyAllow NodesWithoutTopology = "Allow"
)

// StaleTopology says what to do with a node whose graph is known but no longer
// vouched for: its exporter is silent, or published what cannot be read.
type StaleTopology string

// The treatments of nodes with a stale graph.
const (
	// StaleTopologyRefuse keeps GPU pods off them until the exporter is back.
	StaleTopologyRefuse StaleTopology = "Refuse"
	// StaleTopologyCount places pods that ask for nothing about links there, by the
	// number of GPUs and without a choice; the GPUs of the old graph that are known
	// to be used or broken are not counted as free.
	StaleTopologyCount StaleTopology = "Count"
)

// NUMAAffinity is the default of a pod's annotation nvtopo.dev/numa-affinity.
type NUMAAffinity string

// The values of numa-affinity.
const (
	NUMAAffinityNone      NUMAAffinity = "none"
	NUMAAffinityPreferred NUMAAffinity = "preferred"
	NUMAAffinityRequired  NUMAAffinity = "required"
)

// CommonArgs are the arguments that both plugins have, so that each works alone.
// What has to be equal in a process, or in a profile that enables both, is said in
// docs/configuration.md.
type CommonArgs struct {
	// annotationWrite says how a pod's annotations are written: "PreBind" (one
	// PATCH of the pod before binding) or "Binding" (with the Binding itself; the
	// profile then has to list the plugin under bind, before DefaultBinder).
	// Default: PreBind.
	AnnotationWrite AnnotationWrite `json:"annotationWrite,omitempty"`
	// resources are the extended resources whose units are GPUs with a link graph, 8 at most. Each
	// has its own graph. The policy single-numa-node holds for all of them together, restricted for
	// each by itself. Default: [nvidia.com/gpu].
	Resources []string `json:"resources,omitempty"`
	// residualWeights is how much the GPUs that stay free are worth, by the size of
	// the group they could still form, 2 to 8. Each weight is between 0 and 10 and
	// counts in thousandths. Sizes that are left out have their default.
	// Default: 1 for groups of 2, 4 and 8, which is what jobs ask for, and 0.25 for
	// the others.
	ResidualWeights map[int]float64 `json:"residualWeights,omitempty"`
	// writeAliases says to write scheduling.k8s.io/gpu-ids and
	// scheduling.k8s.io/numa-node beside the annotations under nvtopo.dev/.
	// Default: true.
	WriteAliases *bool `json:"writeAliases,omitempty"`
	// namespace is where the Leases of exporters, node agents and this scheduler
	// are. Default: nvtopo-system.
	Namespace string `json:"namespace,omitempty"`
	// requestTimeout is after how long this scheduler gives up a write of a choice
	// that gets no answer, and for how long the API server may still carry it out. A
	// GPU whose binding failed without a clear answer stays taken at least that long,
	// and until the pod has then been read unbound. Keep it above the API server's
	// --request-timeout. Default: 65s.
	RequestTimeout metav1.Duration `json:"requestTimeout,omitempty"`
	// graphFreshness is for how long after a renewal of its exporter's Lease a node's
	// graph counts, judged by when this scheduler saw the renewal and not by the node's
	// clock. Longer keeps fewer nodes out during an outage of the API server or of exporters, and
	// lost hardware is noticed later. It cannot be below two renewals, 70s.
	// Default: 0, the duration that the Lease itself says (120s).
	GraphFreshness metav1.Duration `json:"graphFreshness,omitempty"`
	// leaderLease names the scheduler's own leader-election Lease. If it is named,
	// a pod is bound only while that Lease is held and was renewed recently, so
	// that a leader which was paused does not finish an old decision.
	// Default: no name, no check.
	LeaderLease LeaderLease `json:"leaderLease,omitempty"`
	// debugAddress is the host:port at which the process shows, over TLS, what it
	// believes of every node and which choices are in flight (GET
	// /debug/nvtopo/state), and answers what-if, to whom RBAC allows these paths. Default: none, off.
	DebugAddress string `json:"debugAddress,omitempty"`
	// debugCertFile and debugKeyFile are the certificate shown there and its key;
	// they are read again when they change. Default: none, a certificate that the
	// process signs itself when it starts.
	DebugCertFile string `json:"debugCertFile,omitempty"`
	DebugKeyFile  string `json:"debugKeyFile,omitempty"`
}

// LeaderLease is the scheduler's own Lease. It lies in the namespace that the
// arguments name: that is the only one whose Leases the plugins watch.
type LeaderLease struct {
	// name of the Lease, leaderElection.resourceName of the configuration. Empty:
	// the Lease is not checked.
	Name string `json:"name,omitempty"`
	// durationSeconds after its last renewal the Lease no longer counts as held. Set it
	// to leaderElection.renewDeadline of the configuration: what a leader sent last then
	// arrives before the next one begins, after leaderElection.leaseDuration. Default: 15.
	DurationSeconds int32 `json:"durationSeconds,omitempty"`
}

// TopologyAwareArgs are the arguments of the plugin TopologyAware.
//
// +kubebuilder:object:root=true
type TopologyAwareArgs struct {
	metav1.TypeMeta `json:",inline"`
	CommonArgs      `json:",inline"`

	// supportedPolicies are the values of nvtopo.dev/topology-policy that pods may
	// use in this profile; a pod with another one is not scheduled.
	// Default: [none, best-effort, restricted, single-numa-node].
	SupportedPolicies []string `json:"supportedPolicies,omitempty"`
	// defaultPolicy is the policy of pods that name none. It must be one of
	// supportedPolicies. Default: best-effort.
	DefaultPolicy string `json:"defaultPolicy,omitempty"`
	// bandwidthWeight is the share of the chosen ring's bandwidth in a node's
	// score. The three weights are each between 0 and 1, not all 0, and count in
	// relation to their sum. Default: 0.4.
	BandwidthWeight *float64 `json:"bandwidthWeight,omitempty"`
	// latencyWeight is the share of the chosen ring's latency. Default: 0.3.
	LatencyWeight *float64 `json:"latencyWeight,omitempty"`
	// fragmentationWeight is the share of how little the choice costs those who come
	// later, relative to the costliest of the candidates. Default: 0.3.
	FragmentationWeight *float64 `json:"fragmentationWeight,omitempty"`
	// timeTolerance is by what share of the shortest time of an all-reduce another node's may be
	// longer and count as equal, so that the weights decide. 0 to 1. Default: 0.1.
	TimeTolerance *float64 `json:"timeTolerance,omitempty"`
	// largerPodsHeadroom leaves machines to larger pods: smaller pods take them last while, beside
	// those that pods have which no smaller machine could serve, fewer are left than this many
	// times the root of their number. 0 to 10; 0: never. Default: 1.5.
	LargerPodsHeadroom *float64 `json:"largerPodsHeadroom,omitempty"`
	// singleGPUs says where pods of one GPU go: "SlowLinks", to the machines whose links are
	// slowest, "SlowGPUs", to the GPUs that compute slowest, or "LeastLost", where they take the
	// least share of a machine from others. Default: SlowLinks.
	SingleGPUs SingleGPUs `json:"singleGPUs,omitempty"`
	// hardwareLabels are the labels of nodes that name their hardware. A pod's preferred node
	// affinity decides about the machine before the time of an all-reduce does, if its terms are
	// about these labels only. Default: [nvidia.com/gpu.product, nvidia.com/gpu.family,
	// nvidia.com/gpu.machine, node.kubernetes.io/instance-type, cloud.google.com/gke-accelerator,
	// karpenter.k8s.aws/instance-family, karpenter.k8s.aws/instance-gpu-name]; []: none.
	HardwareLabels []string `json:"hardwareLabels,omitempty"`
	// narrowTo is the most nodes that a scheduling cycle of a GPU pod looks at: the
	// best of all nodes, by reserve, time and then score. If other plugins refuse
	// all of them, the pod is tried again at once on all nodes; for that the profile
	// must list TopologyAware under postFilter, before DefaultPreemption. Pods with
	// wishes about other pods, volumes or ports get all nodes between which the
	// score decides. 0: no narrowing. Default: 16.
	NarrowTo *int32 `json:"narrowTo,omitempty"`
	// narrowTolerance is how many points of the score, 0 to 100, a node may be behind
	// the best and still be listed, for the other plugins' scores to choose from.
	// Default: 0, so that they choose among equals only.
	NarrowTolerance *float64 `json:"narrowTolerance,omitempty"`
	// reserveGPUNodes keeps pods that ask for no GPU off nodes that have some, as
	// long as they fit on others. With narrowTo 0 only the score does so. Default: true.
	ReserveGPUNodes *bool `json:"reserveGPUNodes,omitempty"`
	// unenforcedNodes says whether nodes without a working node agent may be used:
	// "Allow", "WholeNodeOnly" (by pods that take all their GPUs) or "Refuse". Pods that read their
	// GPUs from annotations are treated as under WholeNodeOnly at least. Default: Allow.
	UnenforcedNodes UnenforcedNodes `json:"unenforcedNodes,omitempty"`
	// nodesWithoutTopology says whether nodes with GPUs but without a valid, fresh
	// NodeGPUTopology may be used: "Refuse", or "Allow" for pods that ask for
	// nothing about links. Default: Refuse.
	NodesWithoutTopology NodesWithoutTopology `json:"nodesWithoutTopology,omitempty"`
	// staleTopology says whether nodes whose graph is known but stale may be used:
	// "Refuse", or "Count" for pods that ask for nothing about links; these are bound
	// without a choice and get the condition nvtopo.dev/PlacedByCount.
	// Default: Count if nodesWithoutTopology is Allow, else Refuse.
	StaleTopology StaleTopology `json:"staleTopology,omitempty"`
	// terminationWait is how long a pod waits for pods that are being deleted rather than
	// have others evicted. Longer ones are not waited for, whatever grace period their
	// owners chose: pods that end sooner are evicted instead, if there are any. A pod's
	// own victims, too, are given so long before it looks for others. Between 1s and 1h.
	// Default: 5m.
	TerminationWait metav1.Duration `json:"terminationWait,omitempty"`
}

// NUMAAffinityArgs are the arguments of the plugin NUMAAffinity.
//
// +kubebuilder:object:root=true
type NUMAAffinityArgs struct {
	metav1.TypeMeta `json:",inline"`
	CommonArgs      `json:",inline"`

	// sameNUMABonus is added to the neutral score of 50 where the GPUs, CPUs and
	// memory of the choice lie in one NUMA node. Between 0 and 100. Default: 50.
	SameNUMABonus *int64 `json:"sameNUMABonus,omitempty"`
	// crossNUMAPenalty is taken from the score for every further NUMA node that
	// the choice spans; CPUs or memory from elsewhere count as one more. Between 0 and 100. Default: 20.
	CrossNUMAPenalty *int64 `json:"crossNUMAPenalty,omitempty"`
	// defaultAffinity is the nvtopo.dev/numa-affinity of pods that name none:
	// "none", "preferred" or "required". Default: none.
	DefaultAffinity NUMAAffinity `json:"defaultAffinity,omitempty"`
	// cpuset says to choose CPUs near the GPUs and to write them to
	// nvtopo.dev/cpuset. Nodes whose kubelet chooses exclusive CPUs itself get the
	// NUMA node only. Default: true.
	CPUSet *bool `json:"cpuset,omitempty"`
}

// GangPlacementArgs are the arguments of the plugin GangPlacement. They concern the process,
// so they have to be equal in all profiles that enable it.
//
// +kubebuilder:object:root=true
type GangPlacementArgs struct {
	metav1.TypeMeta `json:",inline"`

	// scheduleTimeout is how long a gang may stay partly bound before it is rolled back, from when the
	// process that leads first saw it so: the members that are bound are evicted, and the gang is placed
	// anew. It is done only while
	// the gang's PodGroup says that it was never whole. 0: no member is ever evicted for it. Else
	// between 10s and 24h. The PodGroup's own scheduleTimeoutSeconds is another time: members wait
	// so long for each other before the gang runs. Default: 10m.
	ScheduleTimeout *metav1.Duration `json:"scheduleTimeout,omitempty"`
	// drainAfter is after how long without room places are kept for a gang: what its members lack of
	// the nodes where it will soonest fit, from younger pods of its priority or less, until it is
	// placed. Nothing is kept for gangs without devices, nor where only pods of the gang's own namespace
	// are in the way. 0: never. Else between 1s and 24h. Default: 30m.
	DrainAfter *metav1.Duration `json:"drainAfter,omitempty"`
	// drainFor is the longest time that places are kept on a node, or for gangs of one namespace,
	// without a break. Then, and after each time that they were kept in vain, nothing is kept there
	// and for them for as long. 0: without end. Else between 1m and 168h. Default: 12h.
	DrainFor *metav1.Duration `json:"drainFor,omitempty"`
	// drainShare is the largest share, in percent, of the nodes that have such devices on which places
	// are kept for gangs of one namespace; one node at least. Between 1 and 100. Default: 50.
	DrainShare *int32 `json:"drainShare,omitempty"`
	// drainTotalShare is the same for the gangs of all namespaces. Between drainShare and 100.
	// Default: 75, or drainShare if that is more.
	DrainTotalShare *int32 `json:"drainTotalShare,omitempty"`
	// drainNamespaces are the namespaces for whose gangs places are kept. Default: all.
	DrainNamespaces []string `json:"drainNamespaces,omitempty"`
	// drainExcludedNamespaces are those for whose gangs nothing is kept. Default: none.
	DrainExcludedNamespaces []string `json:"drainExcludedNamespaces,omitempty"`
	// anyModelAfter is how long a member of a gang that runs, a replacement or one above the
	// minimum, waits from when it was made for GPUs of the model that the others have; then it gets
	// those of any. A gang
	// that was promised a model by the placement check of pools waits for it likewise.
	// 0: it waits for ever. Else between 1s and 24h. Default: 5m.
	AnyModelAfter *metav1.Duration `json:"anyModelAfter,omitempty"`
}
