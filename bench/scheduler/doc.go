// SPDX-License-Identifier: Apache-2.0

// Command scheduler measures what the project costs a real scheduler, or saves it, beside
// kube-scheduler's own profile. Workloads and profiles are data (workloads.go, profiles.go); one
// runner (run.go) takes every cell, which is one profile, workload, size of cluster and repeat, to
// one of two benches; one report (report.go) makes the tables.
//
// The service (service.go) is a real etcd and kube-apiserver with thousands of bare Node objects and
// the scheduler's binary: pods per second, latency, CPU by program, memory and API writes, also
// beside hostile nodes and waiting gangs. The pods are made first and wait, then the scheduler
// starts, and the window that counts runs from the first binding to the last, or from a later one
// where that is the workload's point. A cell's figures come from one scheduler process that scheduled
// exactly that cell's pods, all of them; otherwise the cell is an error.
//
// The cycle (cycle.go) is the real scheduler in this process, with its cache, queue, snapshot and
// framework, and no API server behind it. A pod counts from the moment it left the queue until its
// Permit plugins ran. A repeat counts only if every pod got a node with what it asked for and no GPU
// went to two pods. Beside it are our plugins alone (latency.go), plans of gangs (plans.go), and
// single pods beside gangs that wait (beside.go).
//
// It says nothing about the quality of placements; bench/quality does.
package main
