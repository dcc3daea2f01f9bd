// SPDX-License-Identifier: Apache-2.0

// Package invoicing keeps what pkg/pools/accounting computes: the costs of records, a tenant's
// balance, and an invoice for each calendar month in UTC, open until a while after the month and
// then final. Its one invariant: what is on a final invoice is marked so before, and on no other.
//
// The events of its cache keep the books of each tenant (accounting.Tally). What is for good is written by what
// the API server has.
//
// It puts sessions that have ended into batches, marked first with their invoice, and deletes their
// records once the API server and its own cache have the batch. Who reads records and then batches misses
// none, and one that is in both counts as the batch has it. It exports final invoices, deletes records and
// batches whose invoice was exported long enough ago, and measures nothing.
package invoicing
