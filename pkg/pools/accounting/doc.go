// SPDX-License-Identifier: Apache-2.0

// Package accounting computes a tenant's costs, invoices and balance from what the API has of them.
// Its one invariant: a session is on one invoice, and a final invoice never changes. It writes
// nothing; each answer is computed anew from records, invoices, credits and prices.
package accounting
