// SPDX-License-Identifier: Apache-2.0

// Package ui runs the browser tests of the web view's pages (ui/e2e) on `nvtopo ui` and a real API server
// with simulated nodes, where the real scheduler placed the pods and gangs. `make test-ui` runs them on a
// made-up cluster (ui/mock) first, and then here. Pictures of this run are in out/ui-cluster; `make
// ui-pictures` copies them to docs/pictures/ui.
package ui
