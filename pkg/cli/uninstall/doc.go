// SPDX-License-Identifier: Apache-2.0

// Package uninstall removes nvtopo from a cluster and leaves running pods as they are.
//
// Read lists the objects, Plan decides without a request which are removed and in which order, and Run
// carries it out. Objects of nvtopo are recognised by the label release.PartOfLabel, by the API groups of
// the project's kinds, by finalizers of its domain, by the controller of an AdmissionCheck, and by the
// manager of a field; never by a name.
package uninstall
