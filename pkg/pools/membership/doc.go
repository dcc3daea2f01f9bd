// SPDX-License-Identifier: Apache-2.0

// Package membership says which pool a node is in. All that count, divide or bill the devices of a
// pool ask it. Its one invariant: a node is in one pool at most, whoever asks.
package membership
