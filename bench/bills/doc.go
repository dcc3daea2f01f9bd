// SPDX-License-Identifier: Apache-2.0

// Command bills measures what an event costs the pool controller that changes a tenant's bill: by the tally that
// it keeps, beside the statement computed anew from all records, as before there were tallies.
//
// A cell has so many sessions of so many tenants, all in memory as the controller's cache has them. An event is
// a session that ends, or whose price is written. No API server takes part: what is read from it and written to
// it is the same for both.
//
// Invariant: both say the same of each tenant that an event was about; otherwise the cell is an error.
package main
