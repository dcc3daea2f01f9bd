// SPDX-License-Identifier: Apache-2.0

// Package alias describes a link graph in the keys that manifests and scripts of others
// look for, beside our own: labels and an annotation of the Node, which the exporter
// writes, and the document of a ConfigMap, which `nvtopo export` writes.
// docs/requirements.md says where they come from and where they differ.
//
// Its one invariant: whatever is called bandwidth_gbps is in GB/s (10^9 bytes/s) of
// both directions together, 600 for a pair of A100 behind NVSwitches. Everywhere else
// in the project a bandwidth is that of one direction.
//
// It describes the hardware and not its health, and leaves it to its callers where a
// key may be written.
package alias
