// SPDX-License-Identifier: Apache-2.0

// Package podkeys lists the annotations and labels of nvtopo that a pod may have, and finds keys of a pod
// that have no effect: misspelled ones, those of a domain that only looks like nvtopo's, and gang keys on
// a pod in no gang. It refuses no pod: such a pod is scheduled as if it did not have the key.
package podkeys
