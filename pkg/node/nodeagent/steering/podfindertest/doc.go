// SPDX-License-Identifier: Apache-2.0

// Package podfindertest builds pods, facts and a kubelet's answers for the tests of
// podfinder and of the packages that use it.
package podfindertest
