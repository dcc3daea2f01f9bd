// SPDX-License-Identifier: Apache-2.0

// Package report has the output of every benchmark: the machine it ran on, the
// statistics of repeated measurements, a Markdown table and a JSON file.
//
// Its one invariant: it reports all measurements and hides nothing. A sample
// keeps every value, and a statistic that a sample is too small for is NaN, not
// a guess.
//
// It measures nothing itself and does not know which values are compared.
package report
