// SPDX-License-Identifier: Apache-2.0

// Package units says in what the quota of a pool is counted: in whole devices, in thousandths of
// a GPU where MIG slices are given out, in turns where containers take turns on a device.
// Kueue's configuration, quota and bills have the same thousandths from here.
package units
