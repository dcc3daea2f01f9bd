// SPDX-License-Identifier: Apache-2.0

// Command scheduler measures the cost or gain of the project for a real scheduler, compared with
// kube-scheduler's own profile. Workloads and profiles are data (workloads.go, profiles.go); one
// runner (run.go) passes every cell, which is one profile, workload, size of cluster and repeat, to
// one of two benches; one report (report.go) makes the tables.
//
// The service (service.go) is a real etcd and kube-apiserver with thousands of bare Node objects and
// the scheduler's binary: pods per second, latency, CPU by program, memory and API writes, also
// beside hostile nodes and waiting gangs. The pods are created first and wait, then the scheduler
// starts, and the measured window runs from the first binding to the last, or from a later one where
// the workload requires it. A cell's figures come from one scheduler process that scheduled exactly
// that cell's pods, all of them; otherwise the cell is an error.
//
// The cycle (cycle.go) is the real scheduler in this process, with its cache, queue, snapshot and
// framework, and no API server behind it. A pod is timed from the moment it left the queue until its
// Permit plugins ran. A repeat is valid only if every pod got a node with the requested resources and
// no GPU went to two pods. Further parts measure our plugins alone (latency.go), plans of gangs
// (plans.go), and single pods beside waiting gangs (beside.go).
//
// It does not measure the quality of placements; bench/quality does.
package main
