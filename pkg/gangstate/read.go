// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// maxEventReads bounds how many members of one gang are read for events in a second. A read takes
// about a microsecond a member, under a lock that all pods' PreEnqueue may wait for: a gang of
// thousands, each of which is made or ends on its own, would be read thousands of times. What is
// above it waits for the next tick, and cycles never rest on what is stale.
const maxEventReads = 1 << 13

// readAgain reads a gang for an event, if that is not too often: a gang that is larger is read once
// a second. It needs g.mu.
func (g *Gangs) readAgain(x *gang) {
	if x.read != nil && x.events > 0 && x.events+g.known(x) > maxEventReads {
		return
	}
	x.events += g.known(x)
	g.readNow(x)
}

// readNow reads a gang if something changed since it was read. It needs g.mu.
func (g *Gangs) readNow(x *gang) {
	if x.read != nil && !x.stale {
		return
	}
	x.read, x.stale = gangrequest.Read(x.key, g.group[x.key], g.listed(x)), false
	x.turns = g.turnsOf(x)
	if x.turns.passed { // others had room meanwhile, so something may have changed
		g.allPassed(x)
		g.Changed()
	}
	x.counted, x.priority = 0, x.read.Priority
	if x.read.Err == nil && g.known(x) < x.read.Minimum {
		x.counted = x.read.Minimum
	}
}

// known is how many pods of a gang there are, finished ones included; one that just finished may
// be counted twice. It needs g.mu.
func (g *Gangs) known(x *gang) int { return len(x.pods) + len(g.ended[x.key]) }

// listed returns the pods of a gang. Finished ones come first: of a pod that is there twice, the
// first counts. It needs g.mu.
func (g *Gangs) listed(x *gang) []*v1.Pod {
	return slices.AppendSeq(slices.Collect(maps.Values(g.ended[x.key])), maps.Values(x.pods))
}
