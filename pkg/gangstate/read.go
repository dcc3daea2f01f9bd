// SPDX-License-Identifier: Apache-2.0

package gangstate

import "github.com/nvtopo/nvtopo/pkg/gangrequest"

// maxEventReads bounds how many members of one gang are read for events in a second. A read takes
// about a microsecond a member, under a lock that all pods' PreEnqueue may wait for: a gang of
// thousands, each of which is made or ends on its own, would be read thousands of times. What is
// above it waits for the next tick, and cycles never rest on what is stale.
const maxEventReads = 1 << 13

// readAgain reads a gang for an event, if that is not too often: a gang that is larger is read once
// a second.
func (q *queue) readAgain(x *gang) {
	if x.read != nil && x.events > 0 && x.events+x.count() > maxEventReads {
		return
	}
	x.events += x.count()
	q.readNow(x)
}

// readNow reads a gang if something changed since it was read.
func (q *queue) readNow(x *gang) {
	if x.read != nil && !x.stale {
		return
	}
	x.read, x.stale = gangrequest.Read(x.key, x.group, x.list()), false
	x.turns = q.turnsOf(x)
	if x.turns.passed { // others had room meanwhile, so something may have changed
		q.allPassed(x)
		q.Changed()
	}
	x.counted, x.priority = 0, x.read.Priority
	if x.read.Err == nil && x.count() < x.read.Minimum {
		x.counted = x.read.Minimum
	}
}
