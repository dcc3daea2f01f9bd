// SPDX-License-Identifier: Apache-2.0

// Package topologies is the scheduler's cache of NodeGPUTopologies: what is known of each
// node's devices, whether that still counts, and what is wrong with an object. It answers
// without a lock, and says by return values ([Change]) what an object changed; it wakes
// nobody and knows no pods.
//
// Its locks are its own. Left before right:
//
//	Cache.mu ► the locks of nodelease.Table, v1alpha1.Reader and nvtopo.Registry
//
// Cache.mu guards who owns a device, how much a node may publish, and who writes an [Entry].
// An object is read while it is held, so that none comes back that was removed. Whoever reads
// an Entry takes no lock. No function of others is called under Cache.mu, except that which
// says whether the first lists are in; a Change is passed on after it is released.
package topologies
