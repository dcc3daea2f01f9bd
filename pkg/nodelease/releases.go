// SPDX-License-Identifier: Apache-2.0

package nodelease

import (
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/release"
)

// maxReleases bounds what is remembered: a node may write any number.
const maxReleases = 16

// OtherReleases remembers of which releases the programs of nodes are, to say once of
// each that it is another.
type OtherReleases struct {
	mu   sync.Mutex
	seen map[int]bool // levels other than ours; guarded by mu
}

// first returns how the program of a Lease is marked, if that is of another level
// than this program's and the first such.
func (r *OtherReleases) first(l *coordinationv1.Lease) (release.Mark, bool) {
	m := release.MarkOf(l.Annotations)
	if m.Level == release.Level || !strings.HasPrefix(l.Name, ExporterPrefix) && !strings.HasPrefix(l.Name, AgentPrefix) {
		return m, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[m.Level] || len(r.seen) == maxReleases {
		return m, false
	}
	if r.seen == nil {
		r.seen = map[int]bool{}
	}
	r.seen[m.Level] = true
	return m, true
}

// Tell logs the first Lease of a release that is not this program's. Other Leases
// than those of exporters and agents it ignores.
func (r *OtherReleases) Tell(logger klog.Logger, l *coordinationv1.Lease) {
	m, first := r.first(l)
	switch {
	case !first:
	case m.Supported():
		logger.Info("A program of a node is of another release, as during an upgrade", "lease", l.Name, "release", m.Version, "level", m.Level, "ourLevel", release.Level)
	default:
		logger.Error(nil, "A program of a node is of a release that this one does not work with: releases may be one level apart", "lease", l.Name, "release", m.Version, "level", m.Level, "ourLevel", release.Level)
	}
}
