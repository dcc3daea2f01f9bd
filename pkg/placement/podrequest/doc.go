// SPDX-License-Identifier: Apache-2.0

// Package podrequest is what one pod asks of a node: parsed once from its spec and
// annotations, bounded against absurd input, and immutable from then on. It says which
// annotations users may set; whether a node fits is for others to say.
package podrequest
