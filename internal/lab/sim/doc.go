// SPDX-License-Identifier: Apache-2.0

// Package sim replays a trace of GPU jobs on a cluster that exists on paper and measures the results of
// each policy for choosing node and GPUs.
//
// It owns the discrete-event replay, the policies that are compared, the readers of nodes files and
// traces, and the synthetic traces. Invariant: equal configurations give equal results, and no GPU is
// ever held by two pods.
//
// The policy "ours" is the scheduler's own choice code (pkg/nvtopo/nodeindex), not a copy of it. A replay
// leaves out CPU and memory, preemption, the time a scheduler takes, and, except with
// Config.RunsByPlacement, how a job's speed depends on its links. Its package judge measures the value of
// the placements.
package sim
