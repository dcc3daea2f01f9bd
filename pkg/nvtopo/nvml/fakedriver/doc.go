// SPDX-License-Identifier: Apache-2.0

// Package fakedriver presents a link graph as NVIDIA's driver and the kernel would present the machine: a
// fake libnvidia-ml.so.1 for programs that load it, the exporter and NVIDIA's device plugin among them,
// and a sysfs tree.
//
// The library is the C in lib, which `make fakedriver` builds. It reads the machine from the file that
// FAKENVML_MACHINE names and faults from the one that FAKENVML_FAULTS names, again at every call; this
// package writes both. A new fault is a line that lib/faults.c reads, a function in faults.go that writes
// it, and an entry of the table in test/integration/exporterfaults_test.go.
//
// Invariant: the graph that the exporter reads from it is the graph it was written from.
//
// It has the calls that those programs make and no others, and it does not model a driver's timing. Its
// only MIG devices are of one compute slice.
package fakedriver
