// SPDX-License-Identifier: Apache-2.0

// Command upstream runs Kubernetes' own benchmark of schedulers, test/integration/scheduler_perf, with
// kube-scheduler's default profile and with ours in turn, and compares the throughput that it reports.
// It is a cross-check of bench/scheduler by an independent program: its workloads.yaml has
// SchedulingBasic and a workload of pods with GPUs. perf_test.go is the program of each process.
package main
