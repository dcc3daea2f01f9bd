// SPDX-License-Identifier: Apache-2.0

// Package memoryapi is the part of an API server that a scheduler uses, over objects in memory: list,
// watch, get, patch, bindings and evictions, at connections that never leave the process.
//
// Its one invariant: every change has a resource version of its own, and a watch shows all changes after
// the version it began at, in their order. It validates no object, and removes none: a pod that is
// deleted or evicted is terminating from then on, and is remembered.
package memoryapi
