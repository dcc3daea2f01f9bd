// SPDX-License-Identifier: Apache-2.0

// Package documents makes the documents of the web API from a cluster's objects.
//
// Its one invariant: facts about GPUs come from pkg/inspect/clusterview, reasons for waiting pods from
// pkg/inspect/explain, and amounts owed from pkg/pools/accounting. It is pure: it reads no clock and
// sends no requests. docs/web-api.md has every document with its fields.
package documents
