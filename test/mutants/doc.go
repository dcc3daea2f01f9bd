// SPDX-License-Identifier: Apache-2.0

// Package mutants keeps small wrong edits of the packages that decide who gets which GPUs and who
// pays for them, as patches, and applies them. `make mutants` prints which
// tests fail for each: they measure the tests. A patch that fails no test needs a new test.
//
// A patch is named by the folder under pkg that it edits, a number and its subject. It begins with
// one sentence that says what goes wrong for a user, and for which input:
//
//	# what: a pod that has ended keeps its GPUs until it is deleted.
//
// A patch that no longer applies, since the code it edits was moved, is moved with it.
package mutants
