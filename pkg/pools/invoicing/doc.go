// SPDX-License-Identifier: Apache-2.0

// Package invoicing keeps what pkg/pools/accounting computes: the costs of records, a tenant's
// balance, and an invoice for each calendar month in UTC, open until a while after the month and
// then final. Its one invariant: what is on a final invoice is marked so before, and on no other.
// It deletes records whose final invoice was exported long enough ago, and measures nothing.
package invoicing
