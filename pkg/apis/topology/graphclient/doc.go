// SPDX-License-Identifier: Apache-2.0

// Package graphclient lists and watches NodeGPUTopology and ClusterTopology objects as their own Go
// type, without the second copy as a tree of maps that a dynamic client keeps.
// It writes nothing.
package graphclient
