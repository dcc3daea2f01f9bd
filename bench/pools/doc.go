// SPDX-License-Identifier: Apache-2.0

// Command pools measures how fast Kueue's jobs start when our scheduler places them, compared with
// Kueue with an unchanged kube-scheduler: many jobs of several tenants at once on a real API
// server with simulated nodes.
//
// A cell is all jobs of one scheduler. Cells of both alternate on one cluster, with one Kueue and
// one set of queues; between them all jobs are removed. Both schedulers run in each cell, and the
// one that is not measured has nothing to do. A third kind of cell also has the pool controller
// with its placement check, whose records and checks have a cost.
//
// Invariant: a cell's figures are of all of its jobs, each admitted and each pod bound; otherwise
// the cell is an error.
package main
