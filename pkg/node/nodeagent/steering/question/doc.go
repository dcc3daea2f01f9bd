// SPDX-License-Identifier: Apache-2.0

// Package question is what kubelet asks a device plugin: so many devices out of those that
// it offers; and sets of device ids. It is pure.
//
// The one invariant: an id stands for a device or for a replica of one, and two ids that
// overlap are never with two containers.
package question
