// SPDX-License-Identifier: Apache-2.0

// Package exporter publishes the link graph of one node. It reads a Source regularly and keeps the node's
// NodeGPUTopology, labels and Lease up to date.
//
// It owns the spec of that object, its Ready condition, summary and GPU health, and the topology labels
// of the Node, all under one field manager. Keys outside nvtopo.dev (package alias, --compat-labels) have
// a second one. Invariant: the Lease is renewed only while the object agrees with the last reading. So a
// fresh Lease confirms the object, and an unchanged node costs one write per renewal.
//
// It does not choose devices, and it never writes another node's objects.
package exporter
