// SPDX-License-Identifier: Apache-2.0

// Package testobj builds the pods and nodes of tests that do not link the scheduler. It imports no
// package of ours, so that every package can use it in its internal tests. Tests that link the scheduler
// use internal/schedtest, with the same names.
package testobj
