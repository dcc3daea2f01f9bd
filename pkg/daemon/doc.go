// SPDX-License-Identifier: Apache-2.0

// Package daemon has what the programs that run on every node have in common:
// they end with a signal, find the API server, and serve metrics and health.
// It knows nothing of what they do.
package daemon
