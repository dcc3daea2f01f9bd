// SPDX-License-Identifier: Apache-2.0

package podfinder

import "time"

// How the asking container was found (label source).
const (
	SourceGet        = "get"        // kubelet showed it without devices
	SourceCheckpoint = "checkpoint" // the only candidate without a record
	SourceGuess      = "guess"      // the likeliest of several candidates
	SourceNone       = "none"
)

// SettleAge is how long we rely on what was just answered or allocated although
// kubelet's checkpoint does not show it: kubelet writes the checkpoint after the
// container's last resource.
const SettleAge = 2 * time.Second

// Limits for requests to kubelet, which answers 100 a second for all clients together.
const (
	// listAfter: when kubelet does not know this many of the pods asked about, the
	// watch is probably behind. It is unlikely that the order of asking is so wrong.
	listAfter = 16
	// askOnAfterMisfit is how many more pods are asked about after finding one that should not
	// be asking, because what it was promised is not on offer.
	askOnAfterMisfit = 8
)

// Asker is the container that asks, if it was found.
type Asker struct {
	Pod       *Pod
	Container *Container
	Want      []string // physical ids it should get, sorted; nil if nobody chose
	Source    string
	Ambiguous bool
}

// Verdict is what Resolve wants next: kubelet's word on one pod (Ask) or on all its pods
// (Survey), a live list of pods (List), or nothing more: Who asks, nil if nobody was found.
type Verdict struct {
	Ask    *Pod
	Survey bool
	List   bool
	Who    *Asker
}

// Resolve finds the container that asks. If it returns a question, it is called again
// with the answer. It returns each question once.
//
// Kubelet admits one pod at a time. So if it knows a pod as active, and a container of
// that pod has the right size and should hold devices but holds none, that container is
// the one, and the search ends. Kubelet can also know pods without devices for other
// reasons: they were deleted before admission, or started before kubelet lost its
// checkpoint. One of those is taken only if there is no better one in the live list
// either.
func Resolve(f *Facts) Verdict {
	order := candidates(f)
	var known, open []candidate // shown without devices; not asked about, since kubelet does not answer
	unknown, more := 0, 0       // pods that kubelet does not know; those of them after the first of known
	for i := range order {
		c := &order[i]
		a, asked := f.Answers[c.pod.UID]
		switch {
		case !asked && f.Mute:
			open = append(open, *c)
		case !asked:
			if v, ok := f.wish(order[i:], unknown, more); ok {
				return v
			}
		case a.Unknown:
			unknown++
			if len(known) > 0 {
				more++
			}
		default:
			c.known = true
			if c.clean() {
				return Verdict{Who: f.found(*c, SourceGet, false)}
			}
			known = append(known, *c)
		}
	}
	return f.conclude(known, open)
}

// wish is the next thing to ask for; left are the remaining candidates in order. ok is
// false if asking on is not worth it.
func (f *Facts) wish(left []candidate, unknown, more int) (v Verdict, ok bool) {
	switch {
	case f.surveys(left):
		return Verdict{Survey: true}, true
	case f.Active != nil: // kubelet knows all that are left
	case more >= askOnAfterMisfit:
		return Verdict{}, false
	case !f.Listed && unknown >= listAfter:
		return Verdict{List: true}, true
	}
	return Verdict{Ask: left[0].pod}, true
}

// conclude decides when no candidate is clean.
func (f *Facts) conclude(known, open []candidate) Verdict {
	switch {
	case !f.Listed && (!f.Mute || len(known)+len(open) == 0 || len(f.Fresh) > 0):
		// The pod that was found should not be asking. Kubelet finds pods by name, so
		// its answer may be about another pod of that name that the watch has not
		// delivered. If kubelet does not answer and the watch was behind, there may be
		// more new pods than those that came.
		return Verdict{List: true}
	case len(known) > 0:
		return Verdict{Who: f.found(best(known), SourceGet, len(known) > 1)}
	case len(open) == 1 && f.Recorded != nil:
		return Verdict{Who: f.found(open[0], SourceCheckpoint, false)}
	case len(open) > 0:
		return Verdict{Who: f.found(best(open), SourceGuess, len(open) > 1)}
	}
	return Verdict{}
}

func (f *Facts) found(c candidate, source string, ambiguous bool) *Asker {
	return &Asker{Pod: c.pod, Container: c.container, Want: c.want, Source: source, Ambiguous: ambiguous}
}

// Ref names the container that asks.
func (a *Asker) Ref() ContainerRef { return ContainerRef{UID: a.Pod.UID, Container: a.Container.Name} }
