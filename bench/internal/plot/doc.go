// SPDX-License-Identifier: Apache-2.0

// Package plot draws the figures of the benchmarks as SVG: groups of bars with
// error bars and lines with bands, several panels under one legend.
//
// Its one invariant: the drawing shows exactly the given values. A missing value
// is left out, never drawn as 0, and the same figure gives the same bytes.
//
// The drawing itself is gonum's; this package provides the layout, the colours
// and the texts for readers who do not see the picture (title and description).
// It computes no statistics.
package plot
