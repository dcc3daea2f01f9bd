// SPDX-License-Identifier: Apache-2.0

// Package clusterobjects holds the objects of a cluster at one moment and reads them, from files saved
// with kubectl or from an API server.
//
// Its one invariant: an object of a kind that is read is in Objects, or an error names it; a kind that is
// missing is in Objects.Unread. The package does not judge the objects; its callers do.
package clusterobjects
