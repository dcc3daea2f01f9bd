// SPDX-License-Identifier: Apache-2.0

// Command webui measures the cost of the web view: CPU time and memory of the process nvtopo ui
// while a cluster changes and viewers follow the stream.
//
// Three processes take part, so that each one's figures are its own: nvtopo ui as it is shipped,
// this one, which is the API server that it watches and makes the changes, and one for all viewers.
// The API server responds as a real one does, in protobuf where available, and supports lists and
// watches only.
//
// Invariant: a cell's figures are of a time in which each viewer received changes, once in four
// seconds at least; otherwise the cell is an error.
package main
