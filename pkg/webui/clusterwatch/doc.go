// SPDX-License-Identifier: Apache-2.0

// Package clusterwatch watches the objects of a cluster that the web view shows, and returns all of them
// as of one moment.
//
// Its one invariant: it only lists and watches. A kind that is not installed, or may not be read, is
// taken to be empty and reported.
package clusterwatch
