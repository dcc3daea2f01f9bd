// SPDX-License-Identifier: Apache-2.0

// Package answer chooses the devices of a container, once podfinder has found the container. It is pure.
//
// Invariant: an answer has exactly the requested size, contains all devices that kubelet had already
// taken, and no device that is not on offer or that another container has.
package answer
