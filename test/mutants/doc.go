// SPDX-License-Identifier: Apache-2.0

// Package mutants keeps small wrong edits of the packages that allocate GPUs and bill for them, as
// patches, and applies them. `make mutants` prints the tests that fail for each: it measures the tests. A
// patch that fails no test needs a new test.
//
// A patch is named by the folder under pkg that it edits, a number and its subject. It begins with one
// sentence that states the consequence for a user, and the input that causes it:
//
//	# what: a pod that has ended keeps its GPUs until it is deleted.
//
// A patch that no longer applies, since the code it edits was moved, is moved with it.
package mutants
