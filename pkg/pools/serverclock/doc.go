// SPDX-License-Identifier: Apache-2.0

// Package serverclock compares this machine's clock with the API server's: what is written by a clock that
// jumped cannot be taken back. It asks nobody; each answer of an API server says when it was given.
package serverclock
