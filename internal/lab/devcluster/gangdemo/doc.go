// SPDX-License-Identifier: Apache-2.0

// Package gangdemo shows gangs on a simulated fabric: 32 nodes in eight racks on two spines. Single pods,
// gangs, the replacement of a member, a gang that waits for a rack, and one for which another is
// preempted come one after the other, and a picture in text shows the owner of each GPU.
//
// Invariant: the promises of a scene are checked on the bound pods, never on the scheduler's messages.
package gangdemo
