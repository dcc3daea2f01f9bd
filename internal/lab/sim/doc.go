// SPDX-License-Identifier: Apache-2.0

// Package sim replays a trace of GPU jobs on a cluster that exists on paper and
// measures what each way of choosing node and GPUs makes of it.
//
// It owns the discrete-event replay, the policies that are compared, the readers
// of nodes files and traces, and the synthetic traces. Its one invariant: equal
// configurations give equal results, and no GPU is ever held by two pods.
//
// The policy "ours" is the scheduler's own choice code (pkg/nvtopo/nodeindex), not a
// copy of it. What a replay leaves out: CPU and memory, preemption, the time a
// scheduler takes, and how a job's speed depends on its links but for
// Config.RunsByPlacement. Its package judge says what the placements are worth.
package sim
