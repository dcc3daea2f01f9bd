// SPDX-License-Identifier: Apache-2.0

// Package fleet creates Node objects with the topologies and Leases of an exporter and a
// node agent, so that thousands of nodes need none of either. Its Leases are longer than
// any run.
package fleet
