// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// Cause names a reason. A node's causes are the names of placement.Reason, and these.
type Cause string

// The causes that lie before any node.
const (
	OtherScheduler  Cause = "OtherScheduler"
	SchedulingGated Cause = "SchedulingGated"
	NoQuota         Cause = "NoQuota"         // Kueue has not admitted the job
	NoQueue         Cause = "NoQueue"         // no label, or a queue that is not there
	OverQuota       Cause = "OverQuota"       // it asks more than its queue can ever have
	NoPlaceYet      Cause = "NoPlaceYet"      // it has quota, and an admission check says no
	Suspended       Cause = "Suspended"       // the job makes no pods
	Unreadable      Cause = "Unreadable"      // what the pod or its gang asks for
	GangIncomplete  Cause = "GangIncomplete"  // members are missing
	VolumeMissing   Cause = "VolumeMissing"   // no such claim
	VolumeUnbound   Cause = "VolumeUnbound"   // a claim that must be bound first
	OtherPlugin     Cause = "OtherPlugin"     // the scheduler refuses for what is not asked here
	NoScheduler     Cause = "NoScheduler"     // it has a place, and no scheduler leads
	WaitsForItsTurn Cause = "WaitsForItsTurn" // it has a place, and the scheduler has not said no
)

// The causes that lie in nodes and that placement has no name for.
const (
	NotSelected Cause = "NotSelected"
	Cordoned    Cause = "Cordoned"
	Tainted     Cause = "Tainted"
	NotReady    Cause = "NotReady"   // Kubernetes keeps pods from the node for its conditions
	Fragmented  Cause = "Fragmented" // enough devices are free, on too many nodes
	NoDomain    Cause = "NoDomain"   // no domain of the level that the gang requires has room
	FewCPUs     Cause = "FewCPUs"
	LowMemory   Cause = "LowMemory"
	TooManyPods Cause = "TooManyPods"
	HostPort    Cause = "HostPort"  // members of a gang want one port of the node
	KeptApart   Cause = "KeptApart" // an anti-affinity keeps members of a gang on nodes of their own
	NoNodes     Cause = "NoNodes"
	// NeverFits: no room even if no other pod ran, no node were cordoned, all GPUs were healthy and all exporters
	// were there.
	NeverFits Cause = "NeverFits"
	// LostGPUs: pods hold GPUs that are unhealthy or gone, and these still count as given.
	LostGPUs Cause = "LostGPUs"
	// UnhealthyGPUs: nodes would do whose GPUs are unhealthy, and no others, even if no pod ran there.
	UnhealthyGPUs Cause = "UnhealthyGPUs"
	// WholeGPUsOnly: kubelet offers parts or shares of GPUs under the name of whole ones.
	WholeGPUsOnly Cause = "WholeGPUsOnly"
)

// Those of placement that are named here.
var (
	FewGPUs    = causeOf(placement.FewGPUs)
	StaleGraph = causeOf(placement.StaleGraph)
)

func causeOf(r placement.Reason) Cause { return Cause(r.Name()) }

// CauseOf is the cause of a node that has too little of a resource.
func CauseOf(name v1.ResourceName) Cause {
	switch name {
	case v1.ResourceCPU:
		return FewCPUs
	case v1.ResourceMemory:
		return LowMemory
	case v1.ResourcePods:
		return TooManyPods
	default:
		return Cause("Insufficient " + string(name))
	}
}

// kind says what would have to change for an obstacle to go.
type kind uint8

const (
	ofPods  kind = iota // pods on the node go
	ofFault             // the node is mended
	ofWish              // the pod asks for something else, or the node is made for it
	never               // even the empty node does not have it
)

// nodeConditionTaints is the prefix of the taints that Kubernetes gives nodes by their conditions.
const nodeConditionTaints = "node.kubernetes.io/"

func ineligible(q *question, node *v1.Node, why placement.Ineligible, taint v1.Taint) Obstacle {
	switch why {
	case placement.Unschedulable:
		return Obstacle{Cause: Cordoned, Text: "the node is cordoned", kind: ofWish}
	case placement.Tainted:
		if strings.HasPrefix(taint.Key, nodeConditionTaints) {
			return Obstacle{Cause: NotReady, Text: "the node is not ready", Detail: taint.ToString(), kind: ofWish}
		}
		return Obstacle{Cause: Tainted, Text: "a taint that the pod does not tolerate", Detail: taint.ToString(), kind: ofWish}
	default:
		o := Obstacle{Cause: NotSelected, Text: "the pod's node selector or required node affinity does not match", kind: ofWish}
		if selector := labels.SelectorFromSet(q.pod.Spec.NodeSelector); !selector.Matches(labels.Set(node.Labels)) {
			o.Detail = "node selector " + labels.Set(q.pod.Spec.NodeSelector).String()
		}
		return o
	}
}

// refused is an obstacle that placement names.
func refused(q *question, reason placement.Reason, detail string) Obstacle {
	o := Obstacle{Cause: causeOf(reason), Text: reason.Text(q.demand.Request), Detail: detail}
	switch reason {
	case placement.NoGraph, placement.NodeReplaced, placement.StaleGraph, placement.UnreadableGraph, placement.NoDefinition, placement.NotEnforced:
		o.kind = ofFault
	default:
		o.kind = ofPods
	}
	return o
}

// amount writes an amount of a resource as people do.
func amount(name v1.ResourceName, n int64) string {
	switch name {
	case v1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return resource.NewQuantity(n, resource.BinarySI).String()
	default:
		return strconv.FormatInt(n, 10)
	}
}

// ofCluster reports whether a cause that even empty nodes have is that the cluster has too little. The others
// are mended on a node, or by asking in another way.
func ofCluster(cause Cause) bool {
	return !slices.Contains([]Cause{
		WholeGPUsOnly, causeOf(placement.DegradedGPUs), causeOf(placement.GPUCountMismatch), causeOf(placement.UnknownDevices),
		causeOf(placement.UnknownNUMA), causeOf(placement.UnknownGPUMemory), causeOf(placement.UnknownGPUModel),
		causeOf(placement.KubeletRefuses), causeOf(placement.KubeletElsewhere), causeOf(placement.KubeletBusy),
	}, cause)
}
