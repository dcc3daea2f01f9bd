// SPDX-License-Identifier: Apache-2.0

// Package visible reads which devices a container sees by its environment, as the NVIDIA
// container toolkit and CUDA read it.
//
// Its one invariant: a name is called certain only if all devices that it may mean are returned.
package visible
