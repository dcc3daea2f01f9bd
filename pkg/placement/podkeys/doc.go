// SPDX-License-Identifier: Apache-2.0

// Package podkeys says which annotations and labels of ours a pod may have, and which keys of a pod
// nothing reads: misspelled ones, those of a domain that only looks like ours, and those of gangs on
// a pod that is in none. It refuses nothing: such a pod is scheduled as if it did not have the key.
package podkeys
