// SPDX-License-Identifier: Apache-2.0

// Package daemon has what our programs share: they stop on a
// signal, find the API server, and serve metrics and health over TLS to clients that
// the API server's authorizer allows. It knows nothing of what the programs do.
package daemon
