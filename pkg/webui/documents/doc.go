// SPDX-License-Identifier: Apache-2.0

// Package documents makes what the web API answers from a cluster's objects.
//
// Its one invariant: what it says of GPUs is what pkg/inspect/clusterview says, why a pod waits is what
// pkg/inspect/explain says, and what is owed is what pkg/pools/accounting says. It is pure: it reads no
// clock and asks nobody. docs/web-api.md has every document with its fields.
package documents
