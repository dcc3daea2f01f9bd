// SPDX-License-Identifier: Apache-2.0

// Package check says whether a cluster keeps nvtopo's promises: no GPU is in two live
// pods; every bound GPU pod has a complete allocation that fits its node's graph and
// its own demands; kubelet's record is equal to it; what schedulers believe follows from
// the pods; and gangs are bound as a whole, where they require to be. Tests and `nvtopo
// check` use the same functions.
//
// Its one invariant: whether something is a violation depends only on the World.
// Examine reads no clock and makes no request. It shares no code with the scheduler's
// own calculation of what is used, because its purpose is to doubt that. It shares the
// graph and the codecs of annotations and objects.
//
// A World is one moment, and a cluster always changes. What a healthy cluster shows for
// a moment is pending, and becomes a violation when it lasts (see Checker). What was
// true when it was chosen and is not true now, because hardware, graph or demand
// changed, is a note.
package check
