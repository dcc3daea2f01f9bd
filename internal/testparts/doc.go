// SPDX-License-Identifier: Apache-2.0

// testparts runs the parts of make test and make test-all, which are make targets, continues after a part
// that failed, and prints one table of them. It also judges gotestsum's record of a run: which tests
// passed only at a second try, and which failures no second try excuses.
//
//	testparts run [-out DIR] PART…    PART& runs beside the parts after it, up to where PART stands again
//	testparts judge -flakes DIR FILE  FILE was written by gotestsum --jsonfile
package main
