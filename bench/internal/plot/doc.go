// SPDX-License-Identifier: Apache-2.0

// Package plot draws the figures of the benchmarks as SVG: groups of bars with
// error bars and lines with bands, several panels under one legend.
//
// Its one invariant: what is drawn is what was given. A value that is missing is
// left out, never drawn as 0, and the same figure gives the same bytes.
//
// The drawing itself is gonum's; this package owns the layout, the colours and
// what a reader without eyes on the picture gets (title and description). It
// computes no statistics.
package plot
