// SPDX-License-Identifier: Apache-2.0

// Package invoicing writes the results of pkg/pools/accounting: the costs of records, a tenant's
// balance, and an invoice for each calendar month in UTC, open until a while after the month and then
// final. Its one invariant: a session on a final invoice is marked with it before, and on no other.
//
// The events of its cache update the books of each tenant (accounting.Tally). Irreversible writes are
// based on the API server's objects.
//
// It puts ended sessions into batches, marked first with their invoice, and deletes their records once
// the API server and its own cache have the batch. A reader that reads records and then batches misses
// none; of a session in both, the batch is used. It exports final invoices, deletes records and batches
// whose invoice was exported long enough ago, and measures nothing.
package invoicing
