// SPDX-License-Identifier: Apache-2.0

// Package nodestate is the scheduler's view of which GPUs are used and which may be
// chosen. One State serves every profile and both plugins of a process. It has these parts, which New
// makes and Connect feeds; each user is given those that it uses:
//
//	NodeCache        what a node has, what of it is used, and whether a pod fits it
//	PodDevices       which devices bound pods have, by annotation or kubelet's record
//	AllocationTable  chooses devices, and has what pods are assumed to get until their pods show it
//	Nominator        what nominated pods are to get once their victims are gone
//	GangReserver     reserves what all pods of a gang are to get
//	Binder           whether a pod may be bound now, and the attempts to do so
//	PreSelector      which nodes a cycle looks at
//	WaitingPods      the pods that no node took, and when they are tried again
//	Changes          passes on what changes of a node
//	Graphs           reads the NodeGPUTopologies
//	Diagnoser        tells people what the process believes; figureReader, metrics
//
// Events and time drive the others: eventHandlers, doubtReader, expiryWatch and nodeCollector, which
// Connect starts.
//
// Its one invariant: at every moment a GPU that a live pod holds, or has been
// promised, is visible in at least one of the table of reservations, the pod's own
// annotation, or the node agent's record; so no device is in two pods.
//
// What it asks others: package topologies what is known of a node's devices, package
// reservations which choices are on their way to their pods, pkg/placement/usage what is used of a node,
// pkg/placement which GPUs a pod gets there, package candidates which nodes a cycle looks at,
// package waking which waiting pods are tried again, package leader whether a choice may be
// carried out, and package cordons which nodes take no pods while their devices are divided.
//
// It does not know scheduler statuses, which are the plugins' part. A choice is written
// only when a plugin's PreBind or Bind asks for it. On its own the package reads pods
// whose write had no clear answer, and writes annotations anew where such a write was carried
// out late (doubtreads.go).
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
// AllocationTable.choosing guards no field: whoever holds it is the only one that chooses devices and
// adds the choice to the table. What is reserved on a node is read without a lock. No lock is
// held in a call of the scheduling queue or of the waiting pods' list of the framework:
// Activate, AddNominatedPod, NominatedPodsForNode, IterateOverWaitingPods, Allow and Reject.
// What is nominated is asked before, and handed in.
package nodestate
