// SPDX-License-Identifier: Apache-2.0

// Package controller corrects the annotations of pods that got other GPUs than the scheduler chose. It
// uses kubelet's records, which the node agents publish. It runs in the scheduler's process, under its
// own Lease; see docs/decisions/0007-annotation-repair.md.
//
// Its one invariant: it writes only GPUs that a live agent of the pod's own node recorded for this very
// pod, and only over an allocation for this pod that it has read. The patch carries the pod's UID and
// resource version, so a second leader or a late request changes nothing. If no agent is left, it removes
// the mark "enforced" and keeps the GPUs (unproven.go).
//
// It also sends events to running pods: about the state of their GPUs and links (docs/exporter.md,
// "Events on pods"), and if they carry an allocation that is not theirs.
//
// It writes the status of the ClusterTopology (fabric.go), and publishes the scheduler's profiles
// (profiles.go).
//
// It annotates no pod without an allocation by the scheduler, evicts no pods, and does not compute usage:
// the scheduler uses kubelet's record by itself.
package controller
