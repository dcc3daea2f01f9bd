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
	// SharedByAnnotation: the allocations of two live pods have a GPU in common. It is
	// pending if kubelet's record gives the GPU to only one of them and an annotation
	// was corrected after its pod was bound: the other correction should follow.
	SharedByAnnotation = "shared-by-annotation"
	// SharedByRecord: kubelet recorded one GPU for two live pods, and the device plugin
	// does not share GPUs on purpose.
	SharedByRecord = "shared-by-record"
	// SharedByClaim: one scheduler has promised one GPU to two pods.
	SharedByClaim = "shared-by-claim"
	// MissingAllocation: a GPU pod of one of our schedulers is bound without an
	// allocation. It is neither marked as placed by count nor permitted to be. It is
	// pending while the mark may still come.
	MissingAllocation = "missing-allocation"
	// MalformedAllocation: the annotation of a bound pod cannot be read.
	MalformedAllocation = "malformed-allocation"
	// MisplacedAllocation: the allocation is for another node or another pod.
	MisplacedAllocation = "misplaced-allocation"
	// IncompleteAllocation: the allocation gives a container less or more than it asks
	// for.
	IncompleteAllocation = "incomplete-allocation"
	// InconsistentOutputs: a plain annotation for containers differs from the
	// allocation.
	InconsistentOutputs = "inconsistent-outputs"
	// UnknownGPU: a chosen GPU is not in the graph of the pod's node.
	UnknownGPU = "unknown-gpu"
	// UnhealthyGPU: a chosen GPU was already unhealthy when it was chosen.
	UnhealthyGPU = "unhealthy-gpu"
	// DemandUnmet: the GPUs do not meet the pod's policy, min-link, min-bandwidth,
	// models or memory.
	DemandUnmet = "demand-unmet"
	// RecordDiffers: kubelet recorded other GPUs than the allocation says.
	RecordDiffers = "record-differs"
	// LeakedClaim: a scheduler holds GPUs for a pod that can no longer use them.
	LeakedClaim = "leaked-claim"
	// DerivationDiffers: the GPUs that a scheduler counts as used differ from those of
	// the live pods, claims and records.
	DerivationDiffers = "derivation-differs"
	// GangPartlyBound: of a gang that was complete when its first member was bound, some
	// members are bound and others not, for longer than the scheduler's scheduleTimeout.
	GangPartlyBound = "gang-partly-bound"
	// GangScattered: the members are in several domains of the level that the gang requires
	// to be one.
	GangScattered = "gang-scattered"
	// GangRankShared: two bound members of a gang have one rank.
	GangRankShared = "gang-rank-shared"
)

// Findings that are only ever notes.
const (
	// PlacedByCount: bound without an allocation, and marked so. Or without the mark,
	// if the pod's policy or profile permits it and the graph may not have counted.
	PlacedByCount = "placed-by-count"
	// GPUGone: a chosen GPU was in the graph once.
	GPUGone = "gpu-gone"
	// GPUFailed: a chosen GPU is unhealthy now.
	GPUFailed = "gpu-failed"
	// DegradedSince: the demands are no longer met, because the graph, the demands or
	// the GPUs themselves changed after the choice.
	DegradedSince = "degraded-since"
	// Unverified: an allocation cannot be judged, because its node or graph is missing
	// or differs from the one it was chosen on. Or a GPU is recorded twice, and the
	// device plugin is away.
	Unverified = "unverified"
	// MalformedTopology: a NodeGPUTopology cannot be read.
	MalformedTopology = "malformed-topology"
	// StaleExporter: the exporter of a node with a graph does not renew its Lease, so that the graph does not
	// count.
	StaleExporter = "stale-exporter"
	// MissingExporter: a node has GPUs for pods, and nothing publishes a graph of them.
	MissingExporter = "missing-exporter"
	// StaleAgent: the agent of a node does not renew its Lease, so that choices are not enforced there.
	StaleAgent = "stale-agent"
	// MissingAgent: a node with a graph has no agent, and other nodes have one.
	MissingAgent = "missing-agent"
	// NoScheduler: the Lease of the schedulers' leader has run out, or is not there although there is to be one.
	NoScheduler = "no-scheduler"
	// KubeletRefuses: a node's kubelet refused several pods with GPUs within minutes, so that others are
	// preferred for a while.
	KubeletRefuses = "kubelet-refuses"
	// IgnoredKey: pods of our schedulers have annotations or labels that look like ours and that nothing reads.
	IgnoredKey = "ignored-key"
	// SameUUID: two nodes publish one UUID.
	SameUUID = "same-uuid"
	// LateClaim: a claim is old, but its pod may still be bound with it, or no cycle
	// has run that would drop it.
	LateClaim = "late-claim"
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
	// Objects are the objects at fault, the pod or node first.
	Objects []Object `json:"objects"`
	// Field is the field of the first object that shows the fault.
	Field string `json:"field,omitempty"`
	// Message says what is there and what should be there.
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
		slices.CompareFunc(a.Objects, b.Objects, compareObjects),
		cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
}

func compareObjects(x, y Object) int {
	return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID))
}

// Report has all findings; each list is sorted.
type Report struct {
	// Violations break a promise.
	Violations []Violation `json:"violations"`
	// Pending are findings that become violations if they last.
	Pending []Violation `json:"pending,omitempty"`
	// Notes break no promise.
	Notes []Violation `json:"notes,omitempty"`
	// Checked says how much was checked: a report that checked nothing proves nothing.
	Checked Checked `json:"checked"`
}

// Checked counts what was checked.
type Checked struct {
	Pods        int `json:"pods"`        // live and bound, with GPUs
	Allocations int `json:"allocations"` // of them, readable and compared with the graph
	Records     int `json:"records"`     // of them, compared with kubelet's record
	Foreign     int `json:"foreign"`     // GPU pods of others, without an allocation
	Nodes       int `json:"nodes"`       // whose graph could be used
	Claims      int `json:"claims"`
	Gangs       int `json:"gangs"` // placed as such, with a bound member
	Schedulers  int `json:"schedulers"`
}

func (r *Report) violate(v Violation) { r.Violations = append(r.Violations, v) }
func (r *Report) pend(v Violation)    { r.Pending = append(r.Pending, v) }
func (r *Report) note(v Violation)    { r.Notes = append(r.Notes, v) }

// either reports v as a violation, or as a note if something explains it.
func (r *Report) either(v Violation, explained, instead, why string) {
	if explained == "" {
		r.violate(v)
		return
	}
	v.Invariant, v.Message = instead, v.Message+why+explained
	r.note(v)
}

func (r *Report) sort() {
	slices.SortFunc(r.Violations, compareViolations)
	slices.SortFunc(r.Pending, compareViolations)
	slices.SortFunc(r.Notes, compareViolations)
}
