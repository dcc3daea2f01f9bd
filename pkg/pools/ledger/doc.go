// SPDX-License-Identifier: Apache-2.0

// Package ledger reads what a cluster has of pools, usage, prices and invoices, for who shows it.
//
// Its one invariant: it reads invoices before the records that they are made of, and these before the
// batches that replace them, so that no session is in the books twice and none is missing. It computes
// nothing: pkg/pools/accounting does.
package ledger
