// SPDX-License-Identifier: Apache-2.0

// Package debug serves the view of a scheduler process to clients that RBAC allows, and answers what
// would become of pods, in a process of its own. In the snapshot for that, pods are as if they showed
// their assumed allocations (nodestate.Diagnoser.Promises).
//
// Its one invariant: nothing is served before the API server has authenticated and authorized the client.
// It changes nothing, and serves copies.
package debug
