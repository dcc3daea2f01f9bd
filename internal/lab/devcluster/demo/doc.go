// SPDX-License-Identifier: Apache-2.0

// Package demo tests the project's main job from end to end: pods with all kinds of GPU requests arrive
// at a cluster of simulated machines in waves, some finish in between, and every placement is checked.
// Its Runner runs the scenes of all demos, which are data: the changes, the conditions to wait for, and
// the output.
//
// Invariant: a placement is right only if a brute force (package oracle) that shares no code with the
// scheduler's tables and order chooses the same GPUs from those free on the node at the moment of the
// decision, and allows this node among all, and no GPU ever had two owners. Shared are the graphs, the
// constraints and the annotation's codec.
//
// It does not check that a pod without a node had to wait, nor CPUs and memory of other nodes, of which
// the demo's machines have more than its pods request.
package demo
