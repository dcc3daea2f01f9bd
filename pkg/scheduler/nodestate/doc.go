// SPDX-License-Identifier: Apache-2.0

// Package nodestate is the scheduler's view of which GPUs are used and which may be chosen. One State
// serves every profile and both plugins of a process. It has these parts, which New makes and Connect
// feeds; each user is given those that it uses:
//
//	NodeCache        what a node has, what of it is used, and whether a pod fits it
//	PodDevices       which devices bound pods have, by annotation or kubelet's record
//	AllocationTable  chooses devices, and has the assumed allocations until their pods show them
//	Nominator        the allocations kept for nominated pods until their victims are gone
//	GangReserver     reserves devices for all pods of a gang
//	Binder           whether a pod may be bound now, and the attempts to do so
//	PreSelector      which nodes a cycle considers
//	WaitingPods      the pods that fit no node, and when they are tried again
//	Changes          distributes changes of nodes
//	Graphs           reads the NodeGPUTopologies
//	Diagnoser        reports the process's view to people; figureReader, metrics
//
// Events and time drive the others: eventHandlers, doubtReader, expiryWatch and nodeCollector, which
// Connect starts.
//
// Its one invariant: at every moment a GPU that a live pod holds, or is assumed to get, is visible in at
// least one of the table of reservations, the pod's own annotation, or the node agent's record; so no
// device is in two pods.
//
// It uses package topologies for a node's devices, package reservations for the allocations that are on
// their way to their pods, pkg/placement/usage for the usage of a node, pkg/placement for the GPUs that a
// pod gets there, package candidates for the nodes that a cycle considers, package waking for the waiting
// pods to try again, package leader for whether an allocation may be written, and package cordons for the
// nodes that take no pods while their devices are divided.
//
// It does not know scheduler statuses, which are the plugins' part. An allocation is written only when a
// plugin's PreBind or Bind requests it. On its own the package reads pods whose write had no clear
// answer, and rewrites annotations where such a write was carried out late (doubtreads.go).
//
// Locks, left before right:
//
//	AllocationTable.choosing ► reservations.Table.mu; cells.mu
//	candidates.Index.mu ► cells.mu ► topologies.Cache.mu
//	AllocationTable.choosing, candidates.Index.mu ► allocation.Memo.mu
//	AllocationTable.choosing, candidates.Index.mu, topologies.Cache.mu ► the locks of
//		nodelease.Table and nvtopo.Registry
//	AllocationTable.choosing, candidates.Index.mu ► candidates' changes.mu; waking's changes.mu
//	the scheduling queue's lock (PreEnqueue) ► waking's list.mu; reservations.Table.mu
//	FirstLists.mu, Profiles.mu, leader.Leader.mu, cordons.Table.mu, deadline.mu, busySince.mu: with no other
//
// AllocationTable.choosing guards no field: its holder is the only goroutine that chooses devices and
// adds the choice to the table. The reservations of a node are read without a lock. No lock is held in a
// call of the scheduling queue or of the framework's list of waiting pods: Activate, AddNominatedPod,
// NominatedPodsForNode, IterateOverWaitingPods, Allow and Reject. Nominated pods are read before a lock
// is taken, and passed in.
package nodestate
