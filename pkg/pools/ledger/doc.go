// SPDX-License-Identifier: Apache-2.0

// Package ledger reads pools, usage, prices and invoices from a cluster, for display.
//
// Its one invariant: it reads invoices before the records that they are made of, and these before the
// batches that replace them, so that no session is in the books twice and none is missing. It computes
// nothing: pkg/pools/accounting does.
package ledger
