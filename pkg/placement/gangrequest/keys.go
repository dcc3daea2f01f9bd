// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Annotations that users set, on a PodGroup or on the pods of a gang.
const (
	StrategyKey         = "nvtopo.dev/placement-strategy"
	RequiredKey         = "nvtopo.dev/required-topology"
	PreferredKey        = "nvtopo.dev/preferred-topology"
	SegmentSizeKey      = "nvtopo.dev/segment-size"
	RequiredSegmentKey  = "nvtopo.dev/required-segment-topology"
	PreferredSegmentKey = "nvtopo.dev/preferred-segment-topology"
	SpreadOverKey       = "nvtopo.dev/spread-over"
	MaxPerDomainKey     = "nvtopo.dev/max-per-domain"
	PatienceKey         = "nvtopo.dev/placement-patience"
	RankOrderKey        = "nvtopo.dev/rank-order"
)

// MixedModelsKey with the value true lets members of a gang that request the same GPUs get GPUs of several
// models. On a pod it also applies to the GPUs of this pod, so it is not only a key of gangs.
const MixedModelsKey = podrequest.AllowMixedModelsKey

// MessageSizeKey is the size of each GPU's message in the all-reduce by whose time plans are compared, and
// for a single pod the nodes.
const MessageSizeKey = podrequest.MessageSizeKey

// Annotations that users set on pods only.
const (
	GangKey     = "nvtopo.dev/gang"
	GangSizeKey = "nvtopo.dev/gang-size"
	NearKey     = "nvtopo.dev/near" // of a pod that is no member: the name of a gang to be near to
)

// Annotations that only the scheduler writes: the first three on the PodGroup, the last on
// every member with GPUs. A gang without PodGroup has PlacementKey and NodesKey on the pod of its first
// rank, and no state.
const (
	StateKey     = "nvtopo.dev/gang-state"
	PlacementKey = "nvtopo.dev/placement"
	NodesKey     = "nvtopo.dev/gang-nodes"
	RankKey      = "nvtopo.dev/rank"
)

// OutputKeys lists the annotations of gangs that only the scheduler writes.
func OutputKeys() []string { return []string{RankKey, PlacementKey, NodesKey, StateKey} }

// wishKeys are the annotations of a gang's topology request.
var wishKeys = [...]string{
	StrategyKey, RequiredKey, PreferredKey, SegmentSizeKey, RequiredSegmentKey, PreferredSegmentKey,
	SpreadOverKey, MaxPerDomainKey, PatienceKey, RankOrderKey,
}

// InputKeys lists the pod annotations of nvtopo that users may set to make and place gangs.
func InputKeys() []string { return append(slices.Clone(wishKeys[:]), GangKey, GangSizeKey, NearKey) }

// The keys of Kueue. https://kueue.sigs.k8s.io/docs/reference/labels-and-annotations/
const (
	kueueGroupLabel   = "kueue.x-k8s.io/pod-group-name"
	kueueCountKey     = "kueue.x-k8s.io/pod-group-total-count"
	kueueFastKey      = "kueue.x-k8s.io/pod-group-fast-admission"
	kueueGroupIndex   = "kueue.x-k8s.io/pod-group-pod-index"
	kueueManagedLabel = "kueue.x-k8s.io/managed"
	kueuePodSetLabel  = "kueue.x-k8s.io/podset"
	kueueWorkloadKey  = "kueue.x-k8s.io/workload"
	kueueTASLabel     = "kueue.x-k8s.io/tas"
	kueueTopologyGate = "kueue.x-k8s.io/topology"
	kueueRequiredKey  = "kueue.x-k8s.io/podset-required-topology"
	kueuePreferredKey = "kueue.x-k8s.io/podset-preferred-topology"
	kueueSliceKey     = "kueue.x-k8s.io/podset-slice-required-topology"
	kueueSliceSizeKey = "kueue.x-k8s.io/podset-slice-size"
)
