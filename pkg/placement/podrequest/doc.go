// SPDX-License-Identifier: Apache-2.0

// Package podrequest parses a pod's request from its spec and annotations: once, bounded against absurd
// input, and immutable from then on. It defines the annotations that users may set; whether a node fits is
// decided elsewhere.
package podrequest
