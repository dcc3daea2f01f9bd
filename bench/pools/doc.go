// SPDX-License-Identifier: Apache-2.0

// Command pools measures how fast Kueue's jobs start when our scheduler places them, beside Kueue
// with kube-scheduler as it is: many jobs of several tenants at once on a real API server with
// simulated nodes.
//
// A cell is all jobs of one scheduler. Cells of both alternate on one cluster, with one Kueue and
// one set of queues; between them all jobs are gone. Both schedulers run in each cell, and the one
// that is not measured has nothing to do. A third kind of cell has the pool controller, too, with
// its placement check: what is recorded and checked of each job costs something.
//
// Invariant: a cell's figures are of all of its jobs, each admitted and each pod bound; otherwise
// the cell is an error.
package main
