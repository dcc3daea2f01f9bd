// SPDX-License-Identifier: Apache-2.0

// Package accounting computes a tenant's costs, invoices and balance from the API's objects. Its one
// invariant: a session is on one invoice, and a final invoice never changes. It writes nothing.
//
// Books.Compute makes a statement from scratch, from all records, batches, invoices, credits and prices.
// A Tally, which is notified of each change, makes the same one at the cost of the changes.
package accounting
