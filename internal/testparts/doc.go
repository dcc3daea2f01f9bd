// SPDX-License-Identifier: Apache-2.0

// testparts runs the parts of make test and make test-all, which are make targets, goes on
// after a part that failed, and prints one table of them. It also judges what gotestsum recorded
// of a run: which tests passed at a second try only, and which failures no second try excuses.
//
//	testparts run [-out DIR] PART…    PART& goes on beside the parts after it, up to where PART stands again
//	testparts judge -flakes DIR FILE  FILE is what gotestsum --jsonfile wrote
package main
