// SPDX-License-Identifier: Apache-2.0

// Package kubelet holds the tests that need kubelet's own code: what its device
// manager really does (claims_test.go), the whole chain of the node agent under
// it (chain_test.go and races_test.go), and the prediction of its topology
// manager.
//
// It is a Go module of its own because it links kubelet, which nothing that is
// shipped does.
package kubelet
