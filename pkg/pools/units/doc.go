// SPDX-License-Identifier: Apache-2.0

// Package units defines the units of a pool's quota: whole devices, thousandths of a GPU where MIG
// slices are given out, or replicas where containers share a device by time slicing. Kueue's
// configuration, quota and bills use the same thousandths.
package units
