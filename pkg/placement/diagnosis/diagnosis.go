// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Version is the version of State that schedulers of this release make.
const Version = 1

// Path is where a scheduler process shows its State, in JSON.
const Path = "/debug/nvtopo/state"

// State is what one scheduler process believes at one moment, for people and
// for package check.
type State struct {
	Version int `json:"version"`
	// Name tells processes apart: the host's name, of a pod the pod's.
	Name string    `json:"name,omitempty"`
	At   time.Time `json:"at"`
	// Synced: the first lists of graphs and Leases are in.
	Synced bool `json:"synced"`
	// Leader is the holder of the leader Lease as last seen; empty without leaderLease.
	Leader string `json:"leader,omitempty"`
	// LastSweep is when the last scheduling cycle began, where settled claims are
	// dropped; absent before the first.
	LastSweep *time.Time `json:"lastSweep,omitempty"`
	// RequestTimeout is the argument of that name.
	RequestTimeout metav1.Duration `json:"requestTimeout"`
	// Profiles are those whose pods are ours, by name.
	Profiles []Profile `json:"profiles,omitempty"`
	// Claims are the choices on their way to their pods.
	Claims []Reservation `json:"claims,omitempty"`
	// Holds are what nominated pods are to get once their victims are gone.
	Holds []NominatedReservation `json:"holds,omitempty"`
	// Gangs are those of which the process knows pods, by name.
	Gangs []Gang `json:"gangs,omitempty"`
	// Widened are the pods whose next cycle looks at all nodes.
	Widened []types.UID `json:"widened,omitempty"`
	// Nodes are those of which anything is known, by name.
	Nodes []Node `json:"nodes,omitempty"`
}

// ParseState reads a State as a scheduler process shows it.
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

// Awaiting is the phase of a Reservation whose devices are also those of pods that are to go, for
// its pod's gang. Its pod gets them when these are gone, with a plan made anew.
const Awaiting = "awaiting"

// Reservation is a choice on its way to its pod.
type Reservation struct {
	Pod   string    `json:"pod"` // namespace/name
	Node  string    `json:"node"`
	UID   types.UID `json:"uid"`
	Phase string    `json:"phase"`
	Since time.Time `json:"since"` // of the phase
	GPUs  []string  `json:"gpus,omitempty"`
}

// Gang is what the process believes of one gang.
type Gang struct {
	Gang string `json:"gang"` // source namespace/name
	Pods int    `json:"pods"`
	// Waits says why the gang is not tried now, and Until when it is tried at the latest; empty
	// and absent if it does not wait, or for no certain time.
	Waits string     `json:"waits,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	// Awaiting are the members for whom places are held until others, evicted for the gang, are gone.
	Awaiting []types.UID `json:"awaiting,omitempty"`
	// Attempt is absent if none goes on.
	Attempt *GangAttempt `json:"attempt,omitempty"`
}

// GangAttempt is an attempt to place members of a gang, all or none.
type GangAttempt struct {
	Phase string    `json:"phase"`
	Since time.Time `json:"since"`         // of the phase
	Why   string    `json:"why,omitempty"` // of its end
	// Held are the members whose cycles are to come, Reserved those whose Permit is, and
	// Waiting those at Permit or beyond. The others are bound, or out of it.
	Held     []types.UID `json:"held,omitempty"`
	Reserved []types.UID `json:"reserved,omitempty"`
	Waiting  []types.UID `json:"waiting,omitempty"`
}

// Node is what the process believes of one node.
type Node struct {
	Name string `json:"name"`
	// NodeUID is the UID of the Node the stored graph was read on, and
	// ResourceVersion the object's version; absent without a graph.
	NodeUID         types.UID `json:"nodeUID,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Counts: the graph counts now; Why says why it does not.
	Counts bool   `json:"counts"`
	Why    string `json:"why,omitempty"`
	// ExporterUntil and AgentUntil are when the Leases run out; absent without one.
	ExporterUntil *time.Time `json:"exporterUntil,omitempty"`
	AgentUntil    *time.Time `json:"agentUntil,omitempty"`
	// Revision counts changes of the node's graph and claims.
	Revision uint64 `json:"revision"`
	// Memo is the usage remembered by the last scheduling cycle that looked at the
	// node. It may be of an older NodeInfo, which only a cycle can tell.
	Memo *Usage `json:"memo,omitempty"`
	// Derived is computed now from the informer's pods, claims and the agent's record.
	Derived *Usage `json:"derived,omitempty"`
	// Indexed is the free GPUs under which the index of nodes has the node, by resource.
	Indexed map[string][]string `json:"indexed,omitempty"`
	// Offered is the GPUs that the stored graph gives out, used or not, by resource: those that
	// are healthy and no other node's.
	Offered map[string][]string `json:"offered,omitempty"`
	// HeldBack is what waits of the node's object because the node publishes too much; absent
	// if nothing does.
	HeldBack *HeldBack `json:"heldBack,omitempty"`
}

// HeldBack is a version of a NodeGPUTopology that is read later.
type HeldBack struct {
	ResourceVersion string `json:"resourceVersion"`
	// Since is when a version of the object began to wait; a later one takes its place.
	Since time.Time `json:"since"`
	// GraphOnly: only its graph waits. Its status was read with the graph before it.
	GraphOnly bool `json:"graphOnly,omitempty"`
}

// NominatedReservation is what a nominated pod is to get on a node, for so long.
type NominatedReservation struct {
	UID   types.UID `json:"uid"`
	Node  string    `json:"node"`
	Until time.Time `json:"until"`
	GPUs  []string  `json:"gpus,omitempty"`
}

// Usage is which GPUs of a node are used.
type Usage struct {
	// Used are UUIDs in the order of the graph, by resource.
	Used map[string][]string `json:"used,omitempty"`
	// Counted is how many more GPUs pods hold of which only the number is known.
	Counted map[string]int `json:"counted,omitempty"`
	// Generation of the NodeInfo and Revision of the node that a memo is of, and
	// whether that revision is still the node's. Absent of what is derived.
	Generation int64  `json:"generation,omitempty"`
	Revision   uint64 `json:"revision,omitempty"`
	Current    bool   `json:"current,omitempty"`
}
