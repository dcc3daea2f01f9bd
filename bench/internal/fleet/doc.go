// SPDX-License-Identifier: Apache-2.0

// Package fleet makes Node objects with what an exporter and a node agent would publish, so
// that thousands need none of either. Its Leases are longer than any run.
package fleet
