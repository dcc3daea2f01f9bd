// SPDX-License-Identifier: Apache-2.0

// Package webui serves the web view: its files, a read-only JSON API, and a stream of what
// changes. docs/web-api.md has the API, docs/ui.md says how it is run and guarded.
//
// Its one invariant: it answers GET and HEAD only, to who may read the objects that the answer is
// made of, and what it holds for each caller is bounded. What it shows is made by
// pkg/webui/documents of what pkg/webui/clusterwatch holds.
package webui
