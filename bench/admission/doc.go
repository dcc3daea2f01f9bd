// SPDX-License-Identifier: Apache-2.0

// Command admission measures the time that the admission policies add to a tenant's request of the
// greatest length: pods of many annotations, labels, containers and so on, on a real etcd and
// kube-apiserver with all policies of the project and of pools bound.
//
// A request is a dry run of a create, sent with the role edit of one namespace, so that nothing but
// the request is measured. Each is sent in turn to a namespace in which the bindings apply and to
// one that they exclude, in one run, with the same body.
//
// Invariant: a figure is of answered requests; one that fails for another reason than a refusal is
// an error.
package main
