// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The invariants, as Violation.Invariant names them. They are stable.
const (
	// SharedByAnnotation: the allocations of two live pods have a GPU in common. Where
	// kubelet's record gives it to one of them only and an annotation was corrected
	// since its pod was bound, it is pending for the time of the other's correction.
	SharedByAnnotation = "shared-by-annotation"
	// SharedByRecord: kubelet recorded one GPU for two live pods, and the device plugin
	// does not share GPUs on purpose.
	SharedByRecord = "shared-by-record"
	// SharedByClaim: one scheduler has promised one GPU to two pods.
	SharedByClaim = "shared-by-claim"
	// MissingAllocation: a GPU pod of a scheduler of ours is bound without an allocation,
	// and neither marked as placed by count nor permitted to be so. Pending where the
	// mark may still come.
	MissingAllocation = "missing-allocation"
	// MalformedAllocation: the annotation of a bound pod cannot be read.
	MalformedAllocation = "malformed-allocation"
	// MisplacedAllocation: it speaks of another node or another pod.
	MisplacedAllocation = "misplaced-allocation"
	// IncompleteAllocation: it does not give every container what it asks for, or gives more.
	IncompleteAllocation = "incomplete-allocation"
	// InconsistentOutputs: a flat copy says something else than the allocation.
	InconsistentOutputs = "inconsistent-outputs"
	// UnknownGPU: a chosen GPU is not in the graph of the pod's node.
	UnknownGPU = "unknown-gpu"
	// UnhealthyGPU: a chosen GPU was unhealthy already when it was chosen.
	UnhealthyGPU = "unhealthy-gpu"
	// DemandUnmet: the GPUs do not meet the pod's policy, min-link, min-bandwidth,
	// models or memory.
	DemandUnmet = "demand-unmet"
	// RecordDiffers: kubelet recorded other GPUs than the allocation says.
	RecordDiffers = "record-differs"
	// LeakedClaim: a scheduler holds GPUs for a pod that cannot use them any more.
	LeakedClaim = "leaked-claim"
	// MemoDiffers: a scheduler remembered another usage than what it should be of.
	MemoDiffers = "memo-differs"
	// DerivationDiffers: the GPUs that a scheduler counts as used are not those of the
	// live pods, claims and records.
	DerivationDiffers = "derivation-differs"
)

// What is only ever noted.
const (
	// PlacedByCount: bound without an allocation, and marked so; or not, where its policy
	// or profile permits it and the graph may not have counted.
	PlacedByCount = "placed-by-count"
	// GPUGone: a chosen GPU was in the graph once.
	GPUGone = "gpu-gone"
	// GPUFailed: a chosen GPU is unhealthy now.
	GPUFailed = "gpu-failed"
	// DegradedSince: the demands are not met any more, since the graph, the demands or
	// the GPUs themselves changed after the choice.
	DegradedSince = "degraded-since"
	// Unverified: nothing can be said of an allocation, since the node or its graph is
	// not there or is another than the one it was chosen on; or of a GPU recorded twice,
	// since its device plugin is not there.
	Unverified = "unverified"
	// MalformedTopology: a NodeGPUTopology cannot be read.
	MalformedTopology = "malformed-topology"
	// SameUUID: two nodes publish one UUID.
	SameUUID = "same-uuid"
	// LateClaim: a claim is old but its pod may still be bound with it, or no cycle has
	// been there to drop it.
	LateClaim = "late-claim"
	// OtherRelease: programs of nodes are of another release than this program.
	OtherRelease = "other-release"
	// NotSynced: a scheduler has not read all graphs yet.
	NotSynced = "not-synced"
)

// Object names an object of the cluster.
type Object struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
}

// String returns kind, namespace and name as people write them, and the UID.
func (o Object) String() string {
	s := o.Kind + " " + o.Name
	if o.Namespace != "" {
		s = o.Kind + " " + o.Namespace + "/" + o.Name
	}
	if o.UID != "" {
		s += " (" + string(o.UID) + ")"
	}
	return s
}

func podObject(pod *v1.Pod) Object {
	return Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// Violation is one finding.
type Violation struct {
	// Invariant is one of the constants of this package.
	Invariant string `json:"invariant"`
	// Objects are those at fault, the pod or node first.
	Objects []Object `json:"objects"`
	// Field of the first object that shows it.
	Field string `json:"field,omitempty"`
	// Message says what is there and what should be.
	Message string `json:"message"`
}

// String returns the finding on one line.
func (v Violation) String() string {
	names := make([]string, len(v.Objects))
	for i, o := range v.Objects {
		names[i] = o.String()
	}
	s := v.Invariant + ": " + strings.Join(names, ", ")
	if v.Field != "" {
		s += ": " + v.Field
	}
	return s + ": " + v.Message
}

// compareViolations orders by invariant, then by objects and field.
func compareViolations(a, b Violation) int {
	return cmp.Or(cmp.Compare(a.Invariant, b.Invariant),
		slices.CompareFunc(a.Objects, b.Objects, func(x, y Object) int {
			return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID))
		}),
		cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
}

// Report is everything that was found, each list in a fixed order.
type Report struct {
	// Violations break a promise.
	Violations []Violation `json:"violations"`
	// Pending would, if it lasted.
	Pending []Violation `json:"pending,omitempty"`
	// Notes break none.
	Notes []Violation `json:"notes,omitempty"`
	// Checked says how much was looked at: a report without violations about nothing
	// proves nothing.
	Checked Checked `json:"checked"`
}

// Checked counts what was looked at.
type Checked struct {
	Pods        int `json:"pods"`        // live and bound, with GPUs
	Allocations int `json:"allocations"` // of them, readable and compared with the graph
	Records     int `json:"records"`     // of them, compared with kubelet's record
	Foreign     int `json:"foreign"`     // GPU pods of others, without an allocation
	Nodes       int `json:"nodes"`       // whose graph could be used
	Claims      int `json:"claims"`
	Schedulers  int `json:"schedulers"`
}

func (r *Report) sort() {
	slices.SortFunc(r.Violations, compareViolations)
	slices.SortFunc(r.Pending, compareViolations)
	slices.SortFunc(r.Notes, compareViolations)
}
