// SPDX-License-Identifier: Apache-2.0

// Package exporter publishes the link graph of one node: it reads a Source
// again and again and keeps the node's NodeGPUTopology, labels and Lease true.
//
// It owns the spec of that object, its Ready condition, summary and GPU health,
// and the topology labels of the Node under one field manager; the keys of others
// (package alias, --compat-labels) under a second. Its invariant: the Lease is renewed only while the object says what was last read, so a fresh
// Lease vouches for the object and an unchanged node costs one write per renewal.
//
// It does not choose devices, and it never writes another node's objects.
package exporter
