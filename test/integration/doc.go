// SPDX-License-Identifier: Apache-2.0

// Package integration holds the tests that need a real API server. They run
// against pkg/devcluster, each on a cluster of its own or on a shared one, and
// need no installed program: kwok and the scheduler are built on demand into
// the folder named by NVTOPO_BIN, ../../bin by default.
package integration
