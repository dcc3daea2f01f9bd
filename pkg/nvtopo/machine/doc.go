// SPDX-License-Identifier: Apache-2.0

// Package machine is a catalogue of named machines, for demonstrations, tests and simulation: link graphs
// of real hardware, one YAML file each under data. Every file states the source of its matrix and its
// assumptions.
//
// Its one invariant: the same name always gives the same graph, UUIDs included; GraphFor gives each node
// of a simulated cluster UUIDs of its own.
//
// It does not compute bandwidth, which is nvtopo.NewLink's, and it does not discover anything; see the
// sibling packages smi and nvml.
package machine
