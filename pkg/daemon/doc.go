// SPDX-License-Identifier: Apache-2.0

// Package daemon has what the programs that run on every node have in common:
// they end with a signal, find the API server, and serve metrics and health, over
// TLS and to those whom the API server's authorizer allows. It knows nothing of
// what they do.
package daemon
