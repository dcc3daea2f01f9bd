// SPDX-License-Identifier: Apache-2.0

// Package gangdemo shows gangs on a simulated fabric: 32 nodes in eight racks on two spines.
// Single pods, gangs, the replacement of a member, a gang that waits for a rack, and one for
// which another is evicted come one after the other, and a picture in text says who has which GPU.
//
// Its one invariant: what a scene promises is read from the bound pods, never from what the
// scheduler says of them.
package gangdemo
