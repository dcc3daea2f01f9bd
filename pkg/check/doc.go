// SPDX-License-Identifier: Apache-2.0

// Package check says whether a cluster keeps nvtopo's promises: no GPU in two
// live pods, every bound GPU pod with a complete allocation that its node's graph
// and its own demands allow, kubelet's record equal to it, and schedulers whose
// beliefs follow from the pods. Tests and `nvtopo check` use the same functions.
//
// Its one invariant: whether something is a violation depends on the World alone.
// Examine reads no clock, asks nobody and shares no code with the scheduler's own
// account of what is used, which it is there to doubt. It shares the graph, and the
// codecs of annotations and objects.
//
// A World is one moment, and a cluster is never settled: what a healthy cluster
// shows for a moment is pending, and a violation once it has lasted (see Checker).
// What was true when it was chosen and is not any more, since hardware, graph or
// demand changed, is a note.
package check
