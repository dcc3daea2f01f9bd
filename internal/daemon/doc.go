// SPDX-License-Identifier: Apache-2.0

// Package daemon holds the common parts of the programs: they stop on a signal, find the API server, and
// serve metrics and health over TLS to clients that the API server's authorizer allows. It does not
// depend on what the programs do.
package daemon
