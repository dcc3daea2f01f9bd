// SPDX-License-Identifier: Apache-2.0

// Package webui serves the web view: its files, a read-only JSON API, and a stream of changes.
// docs/web-api.md describes the API, docs/ui.md how it is run and secured.
//
// Its one invariant: it answers GET and HEAD only, to callers that may read the objects of the response,
// and its memory for each caller is bounded. pkg/webui/documents makes the responses from the objects in
// pkg/webui/clusterwatch.
package webui
