// SPDX-License-Identifier: Apache-2.0

// Package whatif has what is asked and answered about pods that do not exist: the snapshot of
// a cluster as a scheduler sees it, the pods asked for, and where they would go. The scheduler
// writes snapshots (package debug) and answers; the command nvtopo reads them.
//
// Its one invariant: what it reads is complete and of known kinds, or an error names the object and
// the field. It links no scheduler; package engine does.
package whatif
