// SPDX-License-Identifier: Apache-2.0

// Package question defines kubelet's request to a device plugin, a number of devices out of those
// offered, and sets of device ids. It is pure.
//
// Invariant: an id stands for a device or for a replica of one, and two containers never have overlapping
// ids.
package question
