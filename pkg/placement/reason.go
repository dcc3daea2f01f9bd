// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"sync/atomic"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Reason is why a pod does not fit a node. The zero value, Fits, means that it fits.
type Reason uint8

// The reasons, each with its constant text in reasonTexts.
const (
	Fits Reason = iota
	NoGraph
	NodeReplaced
	StaleGraph
	UnreadableGraph
	NoDefinition
	NotEnforced
	FewGPUs
	DegradedGPUs
	FewSuitableGPUs
	FewOneModel
	FewInNUMA
	FewLinked
	LowBandwidth
	UnknownDevices
	NoNUMACPU
	NoNUMAMemory
	UnknownNUMA
	UnknownGPUMemory
	UnknownGPUModel
	GPUCountMismatch
	KubeletRefuses
	KubeletElsewhere
	KubeletBusy
	PodGone
	AttemptGoesOn
	PlanEnded
	PlanBroken
	PlannedElsewhere
	reasons // count
)

// reasonTexts are constant: the scheduler counts nodes by text.
var reasonTexts = [reasons]string{
	Fits:             "",
	NoGraph:          "node(s) published no GPU topology",
	NodeReplaced:     "node(s) published the GPU topology of an earlier node of the same name",
	StaleGraph:       "node(s) had a GPU topology whose exporter no longer renews its Lease",
	UnreadableGraph:  "node(s) published a GPU topology that this scheduler cannot read",
	NoDefinition:     "node(s) published no GPU topology: the API server does not know NodeGPUTopology, its definition is not installed",
	NotEnforced:      "node(s) had no node agent to give the container the chosen GPUs",
	FewGPUs:          "fewer free GPUs than asked",
	DegradedGPUs:     "fewer free GPUs than asked that may be used together: the others are degraded",
	FewSuitableGPUs:  "fewer free GPUs of the model or memory asked",
	FewOneModel:      "fewer free GPUs of one model than asked",
	FewInNUMA:        "fewer free GPUs in the NUMA nodes the policy allows than asked",
	FewLinked:        "fewer free GPUs joined by the link class asked",
	LowBandwidth:     "no free set of GPUs has the ring bandwidth asked",
	UnknownDevices:   "node(s) had pods whose GPUs are not known, and the pod's policy needs to know",
	NoNUMACPU:        "fewer free CPUs than asked in the NUMA nodes of the choice",
	NoNUMAMemory:     "less free memory than asked in the NUMA nodes of the choice",
	UnknownNUMA:      "node(s) where the NUMA nodes of GPUs, CPUs or memory are not known: loosen topology-policy or numa-affinity, or publish a graph read with sysfs or numactl",
	UnknownGPUMemory: "node(s) with free GPUs whose memory is not known: ask for gpu-model instead of min-gpu-memory",
	UnknownGPUModel:  "node(s) with free GPUs whose model is not known: leave out gpu-model, or run the exporter with --gpu-model",
	GPUCountMismatch: "the containers' GPUs could not be split out of the pod's GPUs",
	KubeletRefuses:   "node(s) whose kubelet would refuse the pod under its topology, CPU or memory policy",
	KubeletElsewhere: "node(s) whose kubelet would take other GPUs than the pod's policy and demands allow",
	KubeletBusy:      "node(s) whose kubelet has yet to admit pods that it might refuse after this one",
	PodGone:          "the pod was deleted or has ended",
	AttemptGoesOn:    "an earlier attempt to bind the pod has not ended yet",
	PlanEnded:        "the plan of the pod's gang has ended",
	PlanBroken:       "node(s) where GPUs that the plan of the pod's gang has for it are broken",
	PlannedElsewhere: "node(s) that the plan of the pod's gang does not have for it",
}

// reasonNames are constant: they are written in records of decisions.
var reasonNames = [reasons]string{
	Fits:             "Fits",
	NoGraph:          "NoGraph",
	NodeReplaced:     "NodeReplaced",
	StaleGraph:       "StaleGraph",
	UnreadableGraph:  "UnreadableGraph",
	NoDefinition:     "NoDefinition",
	NotEnforced:      "NotEnforced",
	FewGPUs:          "FewGPUs",
	DegradedGPUs:     "DegradedGPUs",
	FewSuitableGPUs:  "FewSuitableGPUs",
	FewOneModel:      "FewOneModel",
	FewInNUMA:        "FewInNUMA",
	FewLinked:        "FewLinked",
	LowBandwidth:     "LowBandwidth",
	UnknownDevices:   "UnknownDevices",
	NoNUMACPU:        "NoNUMACPU",
	NoNUMAMemory:     "NoNUMAMemory",
	UnknownNUMA:      "UnknownNUMA",
	UnknownGPUMemory: "UnknownGPUMemory",
	UnknownGPUModel:  "UnknownGPUModel",
	GPUCountMismatch: "GPUCountMismatch",
	KubeletRefuses:   "KubeletRefuses",
	KubeletElsewhere: "KubeletElsewhere",
	KubeletBusy:      "KubeletBusy",
	PodGone:          "PodGone",
	AttemptGoesOn:    "AttemptGoesOn",
	PlanEnded:        "PlanEnded",
	PlanBroken:       "PlanBroken",
	PlannedElsewhere: "PlannedElsewhere",
}

// Name returns the reason's name, which never changes.
func (r Reason) Name() string {
	if r >= reasons {
		return "Unknown"
	}
	return reasonNames[r]
}

// Tally counts nodes by the reason for which they were refused. It is safe for concurrent use; the zero
// value is an empty tally.
type Tally [reasons]uint32

// Add counts one node.
func (t *Tally) Add(r Reason) {
	if r < reasons {
		atomic.AddUint32(&t[r], 1)
	}
}

// Any reports whether some node was refused.
func (t *Tally) Any() bool {
	for i := range t {
		if atomic.LoadUint32(&t[i]) > 0 {
			return true
		}
	}
	return false
}

// Has reports whether some node was refused for a reason.
func (t *Tally) Has(r Reason) bool { return r < reasons && atomic.LoadUint32(&t[r]) > 0 }

// ByName returns the counts above 0; nil if there are none.
func (t *Tally) ByName() map[string]int {
	var out map[string]int
	for i := range t {
		if n := atomic.LoadUint32(&t[i]); n > 0 {
			if out == nil {
				out = map[string]int{}
			}
			out[Reason(i).Name()] = int(n)
		}
	}
	return out
}

// String returns the reason as the pod's status shows it.
func (r Reason) String() string {
	if r >= reasons {
		return "unknown reason"
	}
	return reasonTexts[r]
}

// linkReasonText names the missing fabric, since "NVLink" tells a user more than "the link class asked".
func linkReasonText(c nvtopo.Class) string {
	switch c.Kind {
	case nvtopo.KindNVLink:
		return "fewer free GPUs joined by NVLink than asked"
	case nvtopo.KindXGMI:
		return "fewer free GPUs joined by XGMI than asked"
	case nvtopo.KindHCCS:
		return "fewer free GPUs joined by HCCS than asked"
	default:
		return reasonTexts[FewLinked]
	}
}

// Text returns the constant text of the reason for a request.
func (r Reason) Text(req *podrequest.Request) string {
	if r == FewLinked {
		return linkReasonText(req.Constraint.MinLink)
	}
	return r.String()
}

// fromShortfall returns the reason for the picker's shortfall.
func fromShortfall(s nvtopo.Shortfall) Reason {
	switch s {
	case nvtopo.ShortNone:
		return Fits
	case nvtopo.ShortModel:
		return FewOneModel
	case nvtopo.ShortNUMA:
		return FewInNUMA
	case nvtopo.ShortLink:
		return FewLinked
	case nvtopo.ShortBandwidth:
		return LowBandwidth
	case nvtopo.ShortFree:
		return FewGPUs
	}
	return FewGPUs
}
