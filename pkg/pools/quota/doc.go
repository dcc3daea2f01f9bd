// SPDX-License-Identifier: Apache-2.0

// Package quota computes how a pool's devices are divided: how much each tenant's queue may hold for
// sure, how much more it may borrow, and which jobs may be protected from preemption. It takes data and
// returns data; no other package computes quota.
package quota
