// SPDX-License-Identifier: Apache-2.0

// Package gang is the GangPlacement plugin. It places the pods of a gang together, all or
// none, near each other: the first member's cycle plans for all, its Reserve holds what all
// get, and Permit lets nobody through before the last has come.
//
// Its one invariant: between cycles nothing is held for a gang but by an attempt that
// pkg/scheduler/gangstate knows, or by a claim while evicted pods leave, whose end ends what is held.
//
// What is free and who gets which GPUs is nodestate's to say, and where members go is
// pkg/nvtopo/fabric's.
package gang
