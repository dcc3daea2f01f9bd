// SPDX-License-Identifier: Apache-2.0

// Command tenants measures what one tenant can do to the pods of another: how long a pod of one GPU
// takes from its creation to its binding, alone and beside many large requests of another tenant's
// account, on a real etcd, kube-apiserver and scheduler.
//
// The pods of the measured tenant come one after the other, each when the one before is bound, so
// that they never wait for one another.
//
// Invariant: a row's figures are of pods that were all bound, while the other tenant's load was
// under way; otherwise the row is an error.
package main
