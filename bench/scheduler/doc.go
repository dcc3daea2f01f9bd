// SPDX-License-Identifier: Apache-2.0

// Command scheduler measures what the project costs a real scheduler, or
// saves it: pods per second, latency, CPU, memory and API writes of the stock
// profile and of ours, on a real etcd and kube-apiserver with thousands of bare
// Node objects.
//
// A cell is one profile, one workload and one size of cluster: the pods are
// made first and wait, then the scheduler starts, and the window that counts
// runs from the first binding to the last, or from a later one where that is
// the workload's point. So neither making pods nor filling caches is in a
// figure. Cells of different profiles alternate in one run, each with a
// scheduler process of its own, and the control plane runs in a process of its
// own, so that CPU time is told apart.
//
// Invariant: a cell's figures come from one scheduler process that scheduled
// exactly that cell's pods, all of them; otherwise the cell is an error.
//
// It says nothing about the quality of placements; bench/quality does.
package main
