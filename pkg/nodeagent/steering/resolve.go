// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds on asking kubelet, which answers 100 questions a second, all clients
// together.
const (
	// listAfter pods that kubelet does not know yet, it is likelier that the watch
	// is behind than that the order of asking is that wrong.
	listAfter = 16
	// doubtful: so many more are asked when the pod that was found should not be
	// asking, since what it was promised is not on offer.
	doubtful = 8
)

// question is what kubelet asks: size devices out of offered, all of must.
type question struct {
	resource string
	offered  idSet    // must included
	devices  idSet    // the physical ids of what is offered
	must     []string // sorted
	size     int
	// final: kubelet has taken the devices already and offers nothing else.
	final bool
	at    time.Time // when it came
}

func newQuestion(resource string, offered, must []string, size int) question {
	return question{resource: resource, offered: newSet(offered), devices: newSet(physicals(offered)), must: newSet(must).sorted(), size: size}
}

// finalQuestion is that of an Allocate: who is it that kubelet took ids for.
func finalQuestion(resource string, ids []string) question {
	q := newQuestion(resource, ids, ids, len(ids))
	q.final = true
	return q
}

// slot is one container that may ask.
type slot struct {
	uid       types.UID
	container string
}

// answer is what kubelet said of one pod.
type answer struct {
	unknown bool
	holds   map[string][]string // container -> ids; plain init containers are never there
}

// facts is everything resolve goes by. All maps are of the question's resource.
type facts struct {
	q        question
	now      time.Time
	pods     []*podView
	listed   bool                                   // the API server was asked for the pods
	unlisted bool                                   // and did not answer
	patient  time.Time                              // until then the watch is waited for; zero: not yet
	fresh    map[types.UID]bool                     // those that came during the question
	served   map[types.UID]map[string]servedDevices // what went through us
	recorded map[types.UID]map[string][]string      // kubelet's checkpoint; nil if it cannot be read
	answers  map[types.UID]answer
	gone     map[types.UID]bool // served, and unknown to kubelet when it was asked last
	claimed  map[slot]bool      // another question was answered for it just now
	last     types.UID          // the pod that asked before
	bound    bool               // pods lately came in the order in which they were bound, and not of age
	mute     bool               // kubelet answers no more questions
	// active are the pods that kubelet knows, nil until it was asked for all. Who asks
	// is among them: kubelet knew it before its question, and takes no pod from its books
	// that it is admitting.
	active map[types.NamespacedName]bool
	apart  bool // kubelet was asked for all pods, or cannot be
}

// servedDevices is what one container was given.
type servedDevices struct {
	IDs []string // sorted
	At  time.Time
}

// asker is the container that asks, as far as it could be found.
type asker struct {
	pod       *podView
	container *containerView
	want      []string // physical ids it should get, sorted; nil if nobody chose
	source    string
	ambiguous bool
}

// verdict is what resolve comes to: a question to kubelet, about one pod or for all
// that it knows, the wish for a live list, or the end: who asks, nil if nobody can be
// found.
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
	known     bool // kubelet has shown it without devices
	claimed   bool
	owner     bool // kubelet passes on devices of its own init container
	lost      bool // it was served once, and kubelet has no record of it
}

// Ranks of candidates: the order of asking.
const (
	rankFresh   = iota // kubelet may have known it before the watch did
	rankOwner          // kubelet has taken devices of its init container
	rankExact          // kubelet has taken exactly what was chosen for it
	rankNext           // an earlier container of it was served just now
	rankLost           // it was served, and kubelet has no record of it
	rankWaiting        // it waits for admission
	rankLate           // deleted, already started, or lately unknown to kubelet
	rankClaimed        // a question of it was answered just now
)

// resolve finds the container that asks. It is called again with kubelet's
// answer or the live list whenever it asks for one, and asks for each once.
//
// Kubelet admits one pod at a time, so a pod that it knows as active, with a
// container of the right size that should hold devices and does not, is the one;
// asking stops there. Beside it there can be pods that kubelet knows without
// devices for other reasons: deleted before they were admitted, or started
// before kubelet lost its checkpoint. They are taken when there is no better one,
// in the live list either.
func resolve(f *facts) verdict {
	order := candidates(f)
	var known, open []candidate // shown without devices; not asked for, since nobody answers
	unknown, more := 0, 0       // pods kubelet does not know, and those of them after it has shown one
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

// wish is what to ask for next, the first of left at most; ok is false if that is not
// worth it.
func (f *facts) wish(left []candidate, unknown, more int) (v verdict, ok bool) {
	switch {
	case f.surveys(left):
		return verdict{survey: true}, true
	case f.active != nil: // whoever is left is known to kubelet
	case more >= doubtful:
		return verdict{}, false
	case !f.listed && unknown >= listAfter:
		return verdict{list: true}, true
	}
	return verdict{ask: left[0].pod}, true
}

// take goes on with newer pods. Answers that came for pods that are there stay.
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

// lacks reports whether any of pods is new.
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

// conclude is for when nobody was found against whom nothing speaks.
func (f *facts) conclude(known, open []candidate) verdict {
	switch {
	case !f.listed && (!f.mute || len(known)+len(open) == 0 || len(f.fresh) > 0):
		// Who was found should not be asking. Kubelet finds pods by name: it may be
		// another pod of that name, which the watch has not delivered. Where kubelet does
		// not tell, and the watch was behind, a pod that came since need not be the last.
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

// best is the likeliest of several: first those that are where a pod is when it
// asks, then those that can get what they should. The order of asking decides
// between equals, and it begins with the oldest.
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

// candidates returns the pods that may ask, in the order of asking. A pod of
// which kubelet has shown that no container of the size is without devices is none.
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

// byAge and byBinding are the orders in which kubelet gets pods: it sorts by age what it
// gets at once, such as all of them at its start, and else gets them as they are bound.
func byAge(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), a.pod.created.Compare(b.pod.created), cmp.Compare(a.pod.version, b.pod.version),
		cmp.Compare(a.pod.uid, b.pod.uid))
}

func byBinding(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.pod.version, b.pod.version), cmp.Compare(a.pod.uid, b.pod.uid))
}

// inOrder sorts by rank. Within one rank the two orders take turns, and that which lately
// held begins.
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

// order tells in which of the two orders who asks was the first, if only in one.
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

// candidate tells whether a pod may ask, and for which container.
func (f *facts) candidate(p *podView) (candidate, bool) {
	c := candidate{pod: p}
	c.container, c.lost = f.next(p)
	if c.container == nil {
		return c, false
	}
	c.want = c.container.want[f.q.resource]
	if c.lost {
		// Kubelet asks again for what it had recorded and lost.
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

// next returns the container the pod would ask for now: the first one, in
// kubelet's order, that holds nothing, and nil if it asks for another number. A
// started pod has no order any more: each container asks when it is restarted.
// lost tells that the container was served once.
func (f *facts) next(p *podView) (c *containerView, lost bool) {
	a, asked := f.answers[p.uid]
	if asked && f.namesake(p, a) {
		return nil, false
	}
	// Without the checkpoint only kubelet's answer tells what came before.
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
	// Kubelet tells nobody about plain init containers, but serves them before
	// every later container.
	for j := i + 1; j < len(p.containers); j++ {
		if p.containers[j].limits[f.q.resource] > 0 && f.holds(p, j) {
			return true
		}
	}
	return false
}

// young reports whether the container was served so lately that kubelet's
// checkpoint need not show it.
func (f *facts) young(uid types.UID, container string) bool {
	s, ok := f.served[uid][container]
	return ok && f.now.Sub(s.At) < settleAge
}

// namesake reports whether kubelet's answer, which is by name, is about another
// pod: it holds devices that are not recorded for this pod's UID.
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

// owns reports whether kubelet has taken devices that a plain init container of
// the pod left behind: it gives those to no other pod.
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
