// SPDX-License-Identifier: Apache-2.0

// Package topologies is the scheduler's cache of NodeGPUTopologies: each node's devices, whether they are
// still valid, and the faults of an object. It is read without a lock, and returns the effects of an
// object as a [Change]; it wakes no pods and knows none.
//
// Its locks are its own. Left before right:
//
//	Cache.mu ► the locks of nodelease.Table, v1alpha1.Reader and nvtopo.Registry
//
// Cache.mu guards the ownership of devices and the rate limits of nodes, and is held to write an [Entry].
// An object is read while it is held, so that no removed object comes back. Reading an Entry takes no
// lock. No callback is called under Cache.mu, except the one that returns whether the first lists are in;
// a Change is passed on after it is released.
package topologies
