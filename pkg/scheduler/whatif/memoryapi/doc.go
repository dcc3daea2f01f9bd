// SPDX-License-Identifier: Apache-2.0

// Package memoryapi is the part of an API server that a scheduler uses, over objects in memory:
// list, watch, get, patch, bindings and evictions, at connections that never leave the process.
//
// Its one invariant: every change has a resource version of its own, and a watch shows all changes
// after the version it began at, in their order. It checks no object, and nothing ends in it: a pod
// that is deleted or evicted is being deleted from then on, and is remembered.
package memoryapi
