// SPDX-License-Identifier: Apache-2.0

// Package gang is the GangPlacement plugin. It places the pods of a gang together, all or none, near each
// other: the first member's cycle plans for all, its Reserve reserves the places of all, and Permit lets
// no member through before the last has come.
//
// Its one invariant: between cycles, places are held for a gang only by an attempt known to
// pkg/scheduler/gangstate, or by a claim while evicted pods terminate; the end of either ends the hold.
//
// Package nodestate decides about free devices and allocations, pkg/nvtopo/fabric about the members'
// nodes.
package gang
