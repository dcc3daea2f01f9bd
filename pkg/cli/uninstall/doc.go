// SPDX-License-Identifier: Apache-2.0

// Package uninstall takes nvtopo out of a cluster and leaves running pods as they are.
//
// Read lists what is there, Plan says without a request what is removed and in which order, and Run
// carries it out. What is ours is known by the label release.PartOfLabel, by the API groups of the
// project's kinds, by finalizers of its domain, by the controller of an AdmissionCheck, and by who wrote a
// field; never by a name.
package uninstall
