// SPDX-License-Identifier: Apache-2.0

// Package answer decides what kubelet is told: which devices a container gets, once
// podfinder has found the container. It is pure.
//
// The one invariant: an answer has exactly the size kubelet asked for, contains all devices
// that kubelet had already taken, and nothing that is not on offer or that another
// container has.
package answer
