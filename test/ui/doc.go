// SPDX-License-Identifier: Apache-2.0

// Package ui runs the browser tests of the web view's pages (ui/e2e) on `nvtopo ui` and a real API
// server with simulated nodes, where pods, gangs and pools are what the real scheduler made of them.
// `make test-ui` runs them on a made-up cluster (ui/mock) first, and then here. What they draw here
// is in out/ui-cluster; `make ui-pictures` copies it to docs/pictures/ui.
package ui
