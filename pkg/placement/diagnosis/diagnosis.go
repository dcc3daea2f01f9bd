// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Version is the version of State that schedulers of this release write.
const Version = 1

// Path is the path of the debug endpoint at which a scheduler process serves its State, as JSON.
const Path = "/debug/nvtopo/state"

// State is the state of one scheduler process at one moment, for people and for package check.
type State struct {
	Version int `json:"version"`
	// Name distinguishes processes: the host's name, or in a pod the pod's.
	Name string    `json:"name,omitempty"`
	At   time.Time `json:"at"`
	// Synced: the first lists of graphs and Leases have been received.
	Synced bool `json:"synced"`
	// Leader is the holder of the leader Lease as last seen; empty without leaderLease.
	Leader string `json:"leader,omitempty"`
	// LastSweep is the start of the last scheduling cycle, in which settled claims are dropped; absent before
	// the first.
	LastSweep *time.Time `json:"lastSweep,omitempty"`
	// RequestTimeout is the argument of that name.
	RequestTimeout metav1.Duration `json:"requestTimeout"`
	// Profiles are the profiles whose GPU pods get allocations, by name.
	Profiles []Profile `json:"profiles,omitempty"`
	// Claims are the allocations that are assumed and not yet settled.
	Claims []Reservation `json:"claims,omitempty"`
	// Holds are the allocations for nominated pods, valid once their victims are gone.
	Holds []NominatedReservation `json:"holds,omitempty"`
	// Gangs are the gangs of which the process knows pods, by name.
	Gangs []Gang `json:"gangs,omitempty"`
	// Widened are the pods whose next cycle looks at all nodes.
	Widened []types.UID `json:"widened,omitempty"`
	// Nodes are the nodes that the process knows, by name.
	Nodes []Node `json:"nodes,omitempty"`
}

// ParseState reads the JSON of a State.
func ParseState(data []byte) (*State, error) {
	s := &State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, err
	}
	if s.Version != Version {
		return nil, fmt.Errorf("version %d of the state, and this program reads %d", s.Version, Version)
	}
	return s, nil
}

// Awaiting is the phase of a Reservation, for a member of a gang, of devices that victims still hold. The
// pod gets devices once the victims are gone, from a new plan.
const Awaiting = "awaiting"

// Reservation is an assumed allocation.
type Reservation struct {
	Pod   string    `json:"pod"` // namespace/name
	Node  string    `json:"node"`
	UID   types.UID `json:"uid"`
	Phase string    `json:"phase"`
	Since time.Time `json:"since"` // of the phase
	GPUs  []string  `json:"gpus,omitempty"`
}

// Gang is the state of one gang in the process.
type Gang struct {
	Gang string `json:"gang"` // source namespace/name
	Pods int    `json:"pods"`
	// Waits is why the gang is not tried now, and Until when it is tried at the latest; empty and absent if
	// it does not wait, or for no certain time.
	Waits string     `json:"waits,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	// Awaiting are the members for which places are held until the pods evicted for the gang are gone.
	Awaiting []types.UID `json:"awaiting,omitempty"`
	// Attempt is absent if none is running.
	Attempt *GangAttempt `json:"attempt,omitempty"`
}

// GangAttempt is an attempt to place members of a gang, all or none.
type GangAttempt struct {
	Phase string    `json:"phase"`
	Since time.Time `json:"since"`         // of the phase
	Why   string    `json:"why,omitempty"` // of its end
	// Held are the members whose cycles are still to come, Reserved those whose Permit is still to come, and
	// Waiting those at Permit or beyond. The others are bound, or have left the attempt.
	Held     []types.UID `json:"held,omitempty"`
	Reserved []types.UID `json:"reserved,omitempty"`
	Waiting  []types.UID `json:"waiting,omitempty"`
}

// Node is the state of one node in the process.
type Node struct {
	Name string `json:"name"`
	// NodeUID is the UID of the Node for which the stored graph was read, and ResourceVersion the object's
	// version; absent without a graph.
	NodeUID         types.UID `json:"nodeUID,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Counts: the graph is valid now; Why is the reason if it is not.
	Counts bool   `json:"counts"`
	Why    string `json:"why,omitempty"`
	// ExporterUntil and AgentUntil are when the Leases expire; absent without one.
	ExporterUntil *time.Time `json:"exporterUntil,omitempty"`
	AgentUntil    *time.Time `json:"agentUntil,omitempty"`
	// Revision is the number of changes of the node's graph and claims.
	Revision uint64 `json:"revision"`
	// Memo is the usage cached by the last scheduling cycle that looked at the node. It may be of an older
	// NodeInfo, which only a cycle can tell.
	Memo *Usage `json:"memo,omitempty"`
	// Derived is the usage computed now from the informer's pods, the claims and the agent's record.
	Derived *Usage `json:"derived,omitempty"`
	// Indexed are the free GPUs under which the node index has the node, by resource.
	Indexed map[string][]string `json:"indexed,omitempty"`
	// Offered are the GPUs of the stored graph that can be allocated, used or not, by resource: those that
	// are healthy and belong to no other node.
	Offered map[string][]string `json:"offered,omitempty"`
	// HeldBack is a version of the node's object that is not read yet because the node publishes too much;
	// absent if there is none.
	HeldBack *HeldBack `json:"heldBack,omitempty"`
}

// HeldBack is a version of a NodeGPUTopology that will be read later.
type HeldBack struct {
	ResourceVersion string `json:"resourceVersion"`
	// Since is when a version of the object began to wait; a later version takes its place.
	Since time.Time `json:"since"`
	// GraphOnly: only its graph waits. Its status was read with the graph before it.
	GraphOnly bool `json:"graphOnly,omitempty"`
}

// NominatedReservation is the allocation of a nominated pod on a node, until a given time.
type NominatedReservation struct {
	UID   types.UID `json:"uid"`
	Node  string    `json:"node"`
	Until time.Time `json:"until"`
	GPUs  []string  `json:"gpus,omitempty"`
}

// Usage lists the GPUs of a node that are used.
type Usage struct {
	// Used are UUIDs in the order of the graph, by resource.
	Used map[string][]string `json:"used,omitempty"`
	// Counted is the number of untracked GPUs that pods hold in addition.
	Counted map[string]int `json:"counted,omitempty"`
	// Generation of the NodeInfo and Revision of the node to which a memo belongs, and whether that revision
	// is still the node's. Absent in Derived.
	Generation int64  `json:"generation,omitempty"`
	Revision   uint64 `json:"revision,omitempty"`
	Current    bool   `json:"current,omitempty"`
}
