// SPDX-License-Identifier: Apache-2.0

// Package controller corrects the annotations of pods that got other GPUs than
// the scheduler chose, from what the node agents publish that kubelet recorded.
// It runs in the scheduler's process under a Lease of its own; see
// docs/decisions/0007-annotation-repair.md.
//
// Its one invariant: it names GPUs only as a live agent of the pod's own node
// recorded them for this very pod, and only over a choice for this pod that it has read; the
// patch carries the pod's UID and resource version, so that a second leader or a
// late request changes nothing. Where no agent is left it takes back the word
// "enforced" and leaves the GPUs (unproven.go).
//
// It also tells running pods, by events, what becomes of their GPUs and links
// (docs/exporter.md, "Events on pods"), and that they carry an allocation that is
// not theirs.
//
// It annotates no pod that the scheduler made no choice for, evicts nobody, and
// does not decide what is used: the scheduler counts kubelet's record by itself.
package controller
