// SPDX-License-Identifier: Apache-2.0

// Package billing turns sessions and a price book into charges, invoices and balances, exactly.
// Its one invariant: every amount is a whole number of cents, and a total is the sum of its parts.
// It measures nothing, keeps nothing and knows no Kubernetes: standard library, data in, data out.
package billing
