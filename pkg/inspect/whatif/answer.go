// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
)

// Path is where a scheduler process answers what-if, by POST of the pods as YAML or JSON;
// SnapshotPath is where it shows what it would answer by, by GET.
const (
	Path         = "/debug/nvtopo/what-if"
	SnapshotPath = "/debug/nvtopo/snapshot"
)

// ExitAsked is the exit code of `nvtopo-scheduler what-if` if what was asked for is at fault.
const ExitAsked = 2

// AnswerVersion is the version of Answer that this release makes.
const AnswerVersion = 1

// Outcome is what would become of a pod.
type Outcome string

// The outcomes.
const (
	// Placed: the pod would be bound to the node, with these devices.
	Placed Outcome = "Placed"
	// Preempts: it would be nominated for the node, and wait until the victims are gone.
	Preempts Outcome = "Preempts"
	// Waits: no node would take it; the message says why.
	Waits Outcome = "Waits"
	// Undecided: the scheduler had not decided when the time was over.
	Undecided Outcome = "Undecided"
)

// Answer is what would become of the pods asked for.
type Answer struct {
	Version int `json:"version"`
	// At is the moment of the snapshot.
	At time.Time `json:"at"`
	// Scheduler is the process whose snapshot it was.
	Scheduler string `json:"scheduler,omitempty"`
	// Pods are in the order in which they were asked for.
	Pods []Pod `json:"pods"`
	// Victims are the pods that would be evicted.
	Victims []string `json:"victims,omitempty"`
}

// Pod is what would become of one pod.
type Pod struct {
	Pod     string  `json:"pod"` // namespace/name
	Outcome Outcome `json:"outcome"`
	Node    string  `json:"node,omitempty"`
	// Devices are the GPUs by container, in ring order.
	Devices []Devices `json:"devices,omitempty"`
	// GPUIndices are their positions on the node, as the annotation nvtopo.dev/gpu-indices has them.
	GPUIndices string `json:"gpuIndices,omitempty"`
	NUMANodes  []int  `json:"numaNodes,omitempty"`
	CPUSet     string `json:"cpuset,omitempty"` // in the kernel's format
	// LinkClass and RingBandwidth are of the weakest link of the ring, as in the annotations.
	LinkClass     string `json:"linkClass,omitempty"`
	RingBandwidth string `json:"ringBandwidth,omitempty"`
	Rank          *int   `json:"rank,omitempty"` // of a gang's member
	// Why is, of a pod that is placed, why it is on its node, as explain would say it; of the first pods
	// only, and of none without a choice of GPUs.
	Why *explain.Placed `json:"why,omitempty"`
	Scored
	// Message is the scheduler's, of a pod that is not placed.
	Message string `json:"message,omitempty"`
}

// Scored is the nodes that were scored for a pod.
type Scored struct {
	// Candidates are the best first, at most MaxCandidates. None if one node only fitted.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Equal is how many nodes are as good as the best; 0 if no node was scored.
	Equal int `json:"equal,omitempty"`
}

// MaxCandidates is how many nodes an answer names for a pod: a few, however large the cluster is.
const MaxCandidates = 16

// Devices are what one container would have of one resource.
type Devices struct {
	Container string   `json:"container"`
	Resource  string   `json:"resource"`
	IDs       []string `json:"ids"`
}

// Candidate is a node that was scored. kube-scheduler chooses by lot among those of the highest
// score, which is the sum of what all plugins of the profile give, each times its weight.
type Candidate struct {
	Node  string `json:"node"`
	Score int64  `json:"score"`
}
