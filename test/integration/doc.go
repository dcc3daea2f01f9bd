// SPDX-License-Identifier: Apache-2.0

// Package integration holds the tests that need a real API server. They run against
// internal/lab/devcluster, each on a cluster of its own or on a shared one, and need no installed
// program: kwok and our programs are built on demand into bin. With NVTOPO_BIN set, the programs of that
// folder are used without a build.
package integration
