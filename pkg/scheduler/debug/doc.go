// SPDX-License-Identifier: Apache-2.0

// Package debug shows what a scheduler process believes, to those whom RBAC allows it, and has a
// process of its own answer what would become of pods. The snapshot for that has choices that
// are on their way as if their pods showed them (nodestate.Diagnoser.Promises).
//
// Its one invariant: nothing is shown before the API server has said who asks and
// that they may. It changes nothing, and what it shows are copies.
package debug
