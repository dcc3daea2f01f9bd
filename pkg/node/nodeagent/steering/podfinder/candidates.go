// SPDX-License-Identifier: Apache-2.0

package podfinder

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// candidate is a pod that may be requesting, with the container it would request for.
type candidate struct {
	pod       *Pod
	container *Container
	want      []string
	rank      int
	fits      bool // its wanted devices are on offer
	known     bool // kubelet has reported that it holds no devices
	claimed   bool
	owner     bool // kubelet took devices of its own init container
	lost      bool // it was served once, and kubelet has no record of that
}

// Ranks of candidates: kubelet is queried about pods of a lower rank first.
const (
	rankFresh   = iota // kubelet may have known it before the watch did
	rankOwner          // kubelet has taken devices of its init container
	rankExact          // kubelet has taken exactly what was chosen for it
	rankNext           // an earlier container of it was served just now
	rankLost           // it was served, and kubelet has no record of that
	rankWaiting        // it waits for admission
	rankLate           // deleted, already started, or lately unknown to kubelet
	rankClaimed        // its question was answered just now
)

// clean reports whether no fact speaks against the candidate.
func (c *candidate) clean() bool {
	return c.known && !c.lost && !c.claimed && !c.pod.Deleting && !c.pod.Started && (c.fits || c.owner)
}

// best returns the likeliest candidate. It prefers those in the state of a requesting pod, then those
// that can get their wanted devices. Among equals the first in order wins, which is the oldest.
func best(cs []candidate) candidate {
	worth := func(c candidate) int {
		w := 0
		for _, good := range []bool{c.owner, !c.claimed, !c.container.Running, !c.pod.Started, !c.pod.Deleting, c.fits && c.want != nil, c.fits} {
			w *= 2
			if good {
				w++
			}
		}
		return w
	}
	b := cs[0]
	for _, c := range cs[1:] {
		if worth(c) > worth(b) {
			b = c
		}
	}
	return b
}

// candidates returns the pods that may be requesting, in the order of queries. A pod is left out if
// kubelet has reported that all its containers of this size hold devices.
func candidates(f *Facts) []candidate {
	var cs []candidate
	for _, p := range f.Pods {
		if p.Terminal {
			continue
		}
		if c, ok := f.candidate(p); ok {
			cs = append(cs, c)
		}
	}
	return inOrder(cs, f.ByBinding)
}

// byAge and byBinding are the two orders in which kubelet receives pods. Pods that it receives together,
// such as all pods when it starts, it sorts by age. Others come in the order in which they are bound.
func byAge(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), a.pod.Created.Compare(b.pod.Created), cmp.Compare(a.pod.Version, b.pod.Version),
		cmp.Compare(a.pod.UID, b.pod.UID))
}

func byBinding(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.pod.Version, b.pod.Version), cmp.Compare(a.pod.UID, b.pod.UID))
}

// inOrder sorts by rank. Within one rank it takes pods from both orders alternately, beginning with the
// order that was right recently.
func inOrder(cs []candidate, bound bool) []candidate {
	first, second := slices.SortedFunc(slices.Values(cs), byAge), slices.SortedFunc(slices.Values(cs), byBinding)
	if bound {
		first, second = second, first
	}
	out := make([]candidate, 0, len(cs))
	taken := make(map[types.UID]bool, len(cs))
	take := func(c candidate) {
		if !taken[c.pod.UID] {
			taken[c.pod.UID] = true
			out = append(out, c)
		}
	}
	for i := range cs {
		take(first[i])
		take(second[i])
	}
	return out
}

// Order returns in which of the two orders the requesting pod was first. told is false if it was first in
// both or in neither.
func (f *Facts) Order(who *Asker) (bound, told bool) {
	cs := candidates(f)
	i := slices.IndexFunc(cs, func(c candidate) bool { return c.pod == who.Pod })
	if i < 0 {
		return false, false
	}
	rank := cs[i].rank
	cs = slices.DeleteFunc(cs, func(c candidate) bool { return c.rank != rank })
	aged, bound := slices.MinFunc(cs, byAge).pod == who.Pod, slices.MinFunc(cs, byBinding).pod == who.Pod
	return bound, aged != bound
}

// MayAsk reports whether the pod could be the requesting one.
func (f *Facts) MayAsk(p *Pod) bool {
	_, ok := f.candidate(p)
	return ok
}

// candidate reports whether a pod may be requesting, and for which container.
func (f *Facts) candidate(p *Pod) (candidate, bool) {
	c := candidate{pod: p}
	c.container, c.lost = f.next(p)
	if c.container == nil {
		return c, false
	}
	c.want = c.container.Want[f.Question.Resource]
	if c.lost {
		// Kubelet requests devices again whose record it lost.
		if was := question.Physicals(f.Served[p.UID][c.container.Name].IDs); len(was) == f.Question.Size {
			c.want = was
		}
	}
	c.fits = c.want == nil || f.Question.Devices.HasAll(c.want)
	c.claimed = f.Claimed[ContainerRef{UID: p.UID, Container: c.container.Name}]
	c.owner = f.owns(p)
	c.rank = f.rank(&c)
	return c, true
}

func (f *Facts) rank(c *candidate) int {
	served := len(f.Served[c.pod.UID]) > 0 || len(f.Recorded[c.pod.UID]) > 0
	switch {
	case c.claimed:
		return rankClaimed
	case c.owner:
		return rankOwner
	case f.Fresh[c.pod.UID]:
		return rankFresh
	case c.pod.Deleting || c.pod.Started || f.Gone[c.pod.UID]:
		return rankLate
	case f.Question.Final && c.fits && c.want != nil:
		return rankExact
	case f.Last == c.pod.UID && served:
		return rankNext
	case c.lost:
		return rankLost
	}
	return rankWaiting
}
