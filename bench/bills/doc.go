// SPDX-License-Identifier: Apache-2.0

// Command bills measures the pool controller's cost of an event that changes a tenant's bill: with the
// tally that it keeps, and for comparison with a statement computed from all records, as before tallies
// were introduced.
//
// A cell has a number of sessions and tenants, all in memory as in the controller's cache. An event is a
// session that ends, or whose price is written. No API server takes part: its reads and writes are the
// same for both.
//
// Invariant: both statements are the same for each tenant with an event; otherwise the cell is an error.
package main
