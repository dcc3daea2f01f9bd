// SPDX-License-Identifier: Apache-2.0

// Package clusterobjects holds the objects of a cluster at one moment and reads them, from what kubectl
// saved or from an API server.
//
// Its one invariant: an object of a kind that is read is in Objects, or an error names it; a kind that is
// not there is in Objects.Unread. It does not judge: what follows from the objects is others' to say.
package clusterobjects
