// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// How the asking container was found (label source).
const (
	sourceGet        = "get"        // kubelet showed it without devices
	sourceCheckpoint = "checkpoint" // the only candidate without a record
	sourceGuess      = "guess"      // the likeliest of several candidates
	sourceNone       = "none"
)

// settleAge is how long we rely on what was just answered or allocated although
// kubelet's checkpoint does not show it: kubelet writes the checkpoint after the
// container's last resource.
const settleAge = 2 * time.Second

// Limits for requests to kubelet, which answers 100 a second for all clients together.
const (
	// listAfter: when kubelet does not know this many of the pods asked about, the
	// watch is probably behind. It is unlikely that the order of asking is so wrong.
	listAfter = 16
	// doubtful is how many more pods are asked about after finding one that should not
	// be asking, because what it was promised is not on offer.
	doubtful = 8
)

// slot is one container that may ask.
type slot struct {
	uid       types.UID
	container string
}

// answer is what kubelet said about one pod.
type answer struct {
	unknown bool
	holds   map[string][]string // container -> ids; never has plain init containers
}

// facts is everything that resolve knows. All maps are of the question's resource.
type facts struct {
	q        question
	now      time.Time
	pods     []*podView
	listed   bool                                   // the API server was asked for the pods
	unlisted bool                                   // and did not answer
	patient  time.Time                              // when the wait for the watch ends; zero before it begins
	fresh    map[types.UID]bool                     // those that came during the question
	served   map[types.UID]map[string]servedDevices // what went through us
	recorded map[types.UID]map[string][]string      // kubelet's checkpoint; nil if it cannot be read
	answers  map[types.UID]answer
	gone     map[types.UID]bool // served, and unknown to kubelet when last asked
	claimed  map[slot]bool      // another question was answered for it just now
	last     types.UID          // the pod that asked before
	bound    bool               // pods lately came in the order of binding, not of age
	mute     bool               // kubelet does not answer: stop asking it
	// active are the pods that kubelet knows; nil before it was asked for all. The
	// asking pod is one of them: kubelet knew it before it asked us, and does not
	// forget a pod that it is admitting.
	active map[types.NamespacedName]bool
	apart  bool // a survey was tried for this question, and no other will be
}

// servedDevices is what one container was given.
type servedDevices struct {
	IDs []string // sorted
	At  time.Time
}

// asker is the container that asks, if it was found.
type asker struct {
	pod       *podView
	container *containerView
	want      []string // physical ids it should get, sorted; nil if nobody chose
	source    string
	ambiguous bool
}

// verdict is the result of resolve: a question to kubelet about one pod (ask) or about
// all its pods (survey), a request for a live list, or the end: who asks, nil if nobody
// was found.
type verdict struct {
	ask    *podView
	survey bool
	list   bool
	who    *asker
}

// candidate is a pod that may ask, with the container it would ask for.
type candidate struct {
	pod       *podView
	container *containerView
	want      []string
	rank      int
	fits      bool // what it should get is on offer
	known     bool // kubelet has shown that it holds no devices
	claimed   bool
	owner     bool // kubelet took devices of its own init container
	lost      bool // it was served once, and kubelet has no record of that
}

// Ranks of candidates: pods of a lower rank are asked about first.
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

// resolve finds the container that asks. If it returns a question, it is called again
// with the answer. It returns each question once.
//
// Kubelet admits one pod at a time. So if it knows a pod as active, and a container of
// that pod has the right size and should hold devices but holds none, that container is
// the one, and the search ends. Kubelet can also know pods without devices for other
// reasons: they were deleted before admission, or started before kubelet lost its
// checkpoint. One of those is taken only if there is no better one in the live list
// either.
func resolve(f *facts) verdict {
	order := candidates(f)
	var known, open []candidate // shown without devices; not asked about, since kubelet does not answer
	unknown, more := 0, 0       // pods that kubelet does not know; those of them after the first of known
	for i := range order {
		c := &order[i]
		a, asked := f.answers[c.pod.uid]
		switch {
		case !asked && f.mute:
			open = append(open, *c)
		case !asked:
			if v, ok := f.wish(order[i:], unknown, more); ok {
				return v
			}
		case a.unknown:
			unknown++
			if len(known) > 0 {
				more++
			}
		default:
			c.known = true
			if c.clean() {
				return verdict{who: f.found(*c, sourceGet, false)}
			}
			known = append(known, *c)
		}
	}
	return f.conclude(known, open)
}

// wish is the next thing to ask for; left are the remaining candidates in order. ok is
// false if asking on is not worth it.
func (f *facts) wish(left []candidate, unknown, more int) (v verdict, ok bool) {
	switch {
	case f.surveys(left):
		return verdict{survey: true}, true
	case f.active != nil: // kubelet knows all that are left
	case more >= doubtful:
		return verdict{}, false
	case !f.listed && unknown >= listAfter:
		return verdict{list: true}, true
	}
	return verdict{ask: left[0].pod}, true
}

// take replaces the pods by a newer list and keeps the answers.
func (f *facts) take(pods []*podView) {
	known := f.uids()
	f.pods = pods
	for _, p := range f.pods {
		if !known[p.uid] {
			f.fresh[p.uid] = true
		}
	}
	f.strike()
}

// lacks reports whether pods has one that f does not know.
func (f *facts) lacks(pods []*podView) bool {
	known := f.uids()
	return slices.ContainsFunc(pods, func(p *podView) bool { return !known[p.uid] })
}

func (f *facts) uids() map[types.UID]bool {
	known := make(map[types.UID]bool, len(f.pods))
	for _, p := range f.pods {
		known[p.uid] = true
	}
	return known
}

// conclude decides when no candidate is clean.
func (f *facts) conclude(known, open []candidate) verdict {
	switch {
	case !f.listed && (!f.mute || len(known)+len(open) == 0 || len(f.fresh) > 0):
		// The pod that was found should not be asking. Kubelet finds pods by name, so
		// its answer may be about another pod of that name that the watch has not
		// delivered. If kubelet does not answer and the watch was behind, there may be
		// more new pods than those that came.
		return verdict{list: true}
	case len(known) > 0:
		return verdict{who: f.found(best(known), sourceGet, len(known) > 1)}
	case len(open) == 1 && f.recorded != nil:
		return verdict{who: f.found(open[0], sourceCheckpoint, false)}
	case len(open) > 0:
		return verdict{who: f.found(best(open), sourceGuess, len(open) > 1)}
	}
	return verdict{}
}

func (f *facts) found(c candidate, source string, ambiguous bool) *asker {
	return &asker{pod: c.pod, container: c.container, want: c.want, source: source, ambiguous: ambiguous}
}

// clean reports whether nothing speaks against the candidate.
func (c *candidate) clean() bool {
	return c.known && !c.lost && !c.claimed && !c.pod.deleting && !c.pod.started && (c.fits || c.owner)
}

// best returns the likeliest candidate. It prefers those that are in the state of a pod
// that asks, then those that can get what they should. Between equals the order of
// asking decides, which begins with the oldest.
func best(cs []candidate) candidate {
	worth := func(c candidate) int {
		w := 0
		for _, good := range []bool{c.owner, !c.claimed, !c.container.running, !c.pod.started, !c.pod.deleting, c.fits && c.want != nil, c.fits} {
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

// candidates returns the pods that may ask, in the order of asking. A pod is left out
// if kubelet has shown that all its containers of this size hold devices.
func candidates(f *facts) []candidate {
	var cs []candidate
	for _, p := range f.pods {
		if p.terminal {
			continue
		}
		if c, ok := f.candidate(p); ok {
			cs = append(cs, c)
		}
	}
	return inOrder(cs, f.bound)
}

// byAge and byBinding are the two orders in which kubelet gets pods. Pods that it gets
// at once, such as all pods when it starts, it sorts by age. Others come in the order
// they are bound.
func byAge(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), a.pod.created.Compare(b.pod.created), cmp.Compare(a.pod.version, b.pod.version),
		cmp.Compare(a.pod.uid, b.pod.uid))
}

func byBinding(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.pod.version, b.pod.version), cmp.Compare(a.pod.uid, b.pod.uid))
}

// inOrder sorts by rank. Within one rank it takes pods from both orders alternately,
// beginning with the order that was right lately.
func inOrder(cs []candidate, bound bool) []candidate {
	first, second := slices.SortedFunc(slices.Values(cs), byAge), slices.SortedFunc(slices.Values(cs), byBinding)
	if bound {
		first, second = second, first
	}
	out := make([]candidate, 0, len(cs))
	taken := make(map[types.UID]bool, len(cs))
	take := func(c candidate) {
		if !taken[c.pod.uid] {
			taken[c.pod.uid] = true
			out = append(out, c)
		}
	}
	for i := range cs {
		take(first[i])
		take(second[i])
	}
	return out
}

// order says in which of the two orders the asking pod was first. told is false if it
// was first in both or in neither.
func (f *facts) order(who *asker) (bound, told bool) {
	cs := candidates(f)
	i := slices.IndexFunc(cs, func(c candidate) bool { return c.pod == who.pod })
	if i < 0 {
		return false, false
	}
	rank := cs[i].rank
	cs = slices.DeleteFunc(cs, func(c candidate) bool { return c.rank != rank })
	aged, bound := slices.MinFunc(cs, byAge).pod == who.pod, slices.MinFunc(cs, byBinding).pod == who.pod
	return bound, aged != bound
}

// candidate says whether a pod may ask, and for which container.
func (f *facts) candidate(p *podView) (candidate, bool) {
	c := candidate{pod: p}
	c.container, c.lost = f.next(p)
	if c.container == nil {
		return c, false
	}
	c.want = c.container.want[f.q.resource]
	if c.lost {
		// Kubelet asks again for devices whose record it lost.
		if was := physicals(f.served[p.uid][c.container.name].IDs); len(was) == f.q.size {
			c.want = was
		}
	}
	c.fits = c.want == nil || f.q.devices.hasAll(c.want)
	c.claimed = f.claimed[slot{p.uid, c.container.name}]
	c.owner = f.owns(p)
	c.rank = f.rank(&c)
	return c, true
}

func (f *facts) rank(c *candidate) int {
	served := len(f.served[c.pod.uid]) > 0 || len(f.recorded[c.pod.uid]) > 0
	switch {
	case c.claimed:
		return rankClaimed
	case c.owner:
		return rankOwner
	case f.fresh[c.pod.uid]:
		return rankFresh
	case c.pod.deleting || c.pod.started || f.gone[c.pod.uid]:
		return rankLate
	case f.q.final && c.fits && c.want != nil:
		return rankExact
	case f.last == c.pod.uid && served:
		return rankNext
	case c.lost:
		return rankLost
	}
	return rankWaiting
}

// next returns the container that the pod would ask for now: the first one in kubelet's
// order that holds nothing, or nil if that one has another size. A started pod has no
// such order: each container asks when it restarts. lost says that the container was
// served once.
func (f *facts) next(p *podView) (c *containerView, lost bool) {
	a, asked := f.answers[p.uid]
	if asked && f.namesake(p, a) {
		return nil, false
	}
	// Without the checkpoint, only kubelet's answer shows what the earlier containers
	// hold.
	anyOrder := p.started || (f.recorded == nil && !asked)
	for i := range p.containers {
		c := &p.containers[i]
		n := c.limits[f.q.resource]
		if n == 0 || f.holds(p, i) {
			continue
		}
		_, lost := f.served[p.uid][c.name]
		if n == f.q.size {
			return c, lost
		}
		if !anyOrder {
			return nil, false
		}
	}
	return nil, false
}

// holds reports whether the pod's container i holds devices of the resource.
func (f *facts) holds(p *podView, i int) bool {
	c := &p.containers[i]
	if a, ok := f.answers[p.uid]; ok && !a.unknown {
		if ids, listed := a.holds[c.name]; listed {
			return len(ids) > 0
		}
	}
	if len(f.recorded[p.uid][c.name]) > 0 {
		return true
	}
	if _, ok := f.served[p.uid][c.name]; ok && f.recorded == nil {
		return true
	}
	if !c.plain {
		return false
	}
	// Kubelet does not report plain init containers, but serves them before every later
	// container.
	for j := i + 1; j < len(p.containers); j++ {
		if p.containers[j].limits[f.q.resource] > 0 && f.holds(p, j) {
			return true
		}
	}
	return false
}

// young reports whether the container was served so recently that kubelet's checkpoint
// may not show it yet.
func (f *facts) young(uid types.UID, container string) bool {
	s, ok := f.served[uid][container]
	return ok && f.now.Sub(s.At) < settleAge
}

// namesake reports whether kubelet's answer, which is by name, is about another pod of
// that name: it has devices that are not recorded for this pod's UID.
func (f *facts) namesake(p *podView, a answer) bool {
	if f.recorded == nil || len(f.recorded[p.uid]) > 0 {
		return false
	}
	for container, ids := range a.holds {
		if len(ids) > 0 && !f.young(p.uid, container) {
			return true
		}
	}
	return false
}

// owns reports whether kubelet has taken devices that a plain init container of the pod
// left behind: it gives those to no other pod.
func (f *facts) owns(p *podView) bool {
	if len(f.q.must) == 0 {
		return false
	}
	must := newSet(f.q.must)
	for i := range p.containers {
		c := &p.containers[i]
		if !c.plain {
			continue
		}
		ids := f.recorded[p.uid][c.name]
		if f.recorded == nil {
			ids = f.served[p.uid][c.name].IDs
		}
		if must.hasAny(ids) {
			return true
		}
	}
	return false
}

func (a *asker) slot() slot { return slot{a.pod.uid, a.container.name} }
