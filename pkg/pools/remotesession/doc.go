// SPDX-License-Identifier: Apache-2.0

// Package remotesession runs RemoteGPUSessions: for each a Job of one pod in the pool's queue, which has
// the inference server and a gate in front of it, and a token, an address and an end. Its one invariant:
// a session that has ended gives its devices back, its quota no sooner than them, and is not started
// again.
package remotesession
