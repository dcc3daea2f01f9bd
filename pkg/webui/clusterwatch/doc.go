// SPDX-License-Identifier: Apache-2.0

// Package clusterwatch holds the objects of a cluster that the web view shows, by watching them,
// and gives all of them as they are at one moment.
//
// Its one invariant: it only lists and watches. What is not installed, or may not be read, is
// taken to be none, and said.
package clusterwatch
