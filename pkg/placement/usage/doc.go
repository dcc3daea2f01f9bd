// SPDX-License-Identifier: Apache-2.0

// Package usage says what is used on a node: from its topology, its pods, kubelet's records
// and the choices that are on their way. It takes data and returns data, holds no lock, and
// remembers nothing: whoever asks again gets the answer from the same sources.
package usage
