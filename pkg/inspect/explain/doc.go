// SPDX-License-Identifier: Apache-2.0

// Package explain says why a pod, a gang or a job waits, or why it is where it is.
// Its one invariant: it has no rules of its own. Whether a node takes a pod is asked of the
// packages that the scheduler asks, so "would fit" is what the scheduler would find.
//
// It is pure: from the objects of a World, which others read, to an Explanation. What only the
// scheduler's process knows (choices on their way, places that a gang's plan holds, other
// plugins) it does not have; then it repeats what the scheduler wrote on the pod.
package explain
