// SPDX-License-Identifier: Apache-2.0

// Package ui runs the browser tests of the web view's pages (ui/e2e) on `nvtopo ui` and a real API
// server with simulated nodes, where pods, gangs and pools are what the real scheduler made of them.
// The same tests run on a made-up cluster by `make test-ui`.
package ui
