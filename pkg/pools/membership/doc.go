// SPDX-License-Identifier: Apache-2.0

// Package membership decides which pool a node belongs to. All code that counts, divides or bills the
// devices of a pool uses it. Its one invariant: a node belongs to at most one pool, the same for all
// callers.
package membership
