// SPDX-License-Identifier: Apache-2.0

// Package visible determines which devices a container sees from its environment, as the NVIDIA container
// toolkit and CUDA read it.
//
// Invariant: a name is certain only if all devices that it may mean are returned.
package visible
