// SPDX-License-Identifier: Apache-2.0

// Command tenants measures the effect of one tenant on the pods of another: how long a pod of one
// GPU takes from its creation to its binding, alone and beside many large requests of another
// tenant's account, on a real etcd, kube-apiserver and scheduler.
//
// The pods of the measured tenant are created one after the other, each when the one before is
// bound, so that they never wait for one another.
//
// Invariant: a row's figures are of pods that were all bound while the other tenant's load was
// active; otherwise the row is an error.
package main
