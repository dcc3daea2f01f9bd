// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/release"
)

// maxNamed is how many Leases of one release a note names.
const maxNamed = 5

// crew are the programs of one kind and release on all nodes.
type crew struct {
	program string
	mark    release.Mark
}

// checkReleases notes which programs on nodes have another release than this one.
func (s *scene) checkReleases() {
	leases := map[crew][]Object{}
	for i := range s.w.Leases {
		l := &s.w.Leases[i]
		c := crew{mark: release.MarkOf(l.Annotations)}
		switch {
		case strings.HasPrefix(l.Name, nodelease.ExporterPrefix):
			c.program = "exporters"
		case strings.HasPrefix(l.Name, nodelease.AgentPrefix):
			c.program = "node agents"
		default:
			continue
		}
		if c.mark.Level != release.Level && fresh(l, s.w.Now) {
			leases[c] = append(leases[c], Object{Kind: "Lease", Namespace: l.Namespace, Name: l.Name})
		}
	}
	for c, objects := range leases {
		how := "one level apart, as during an upgrade"
		if !c.mark.Supported() {
			how = "more than one level apart, which is not supported"
		}
		slices.SortFunc(objects, func(a, b Object) int { return cmp.Compare(a.Name, b.Name) })
		s.note(Violation{
			Invariant: OtherRelease, Objects: objects[:min(len(objects), maxNamed)], Field: "metadata.annotations[" + release.LevelKey + "]",
			Message: fmt.Sprintf("%d %s are of release %s, and this program is of %s (level %d): %s",
				len(objects), c.program, c.mark, release.Version(), release.Level, how),
		})
	}
}
