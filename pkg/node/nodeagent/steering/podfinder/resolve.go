// SPDX-License-Identifier: Apache-2.0

package podfinder

import "time"

// Sources of the requesting container (label source).
const (
	SourceGet        = "get"        // kubelet reported it without devices
	SourceCheckpoint = "checkpoint" // the only candidate without a record
	SourceGuess      = "guess"      // the likeliest of several candidates
	SourceNone       = "none"
)

// SettleAge is how long a recent answer or allocation is trusted although kubelet's checkpoint does not
// have it: kubelet writes the checkpoint after the container's last resource.
const SettleAge = 2 * time.Second

// Limits for queries to kubelet, which answers 100 a second for all clients together.
const (
	// listAfter is the number of queried pods unknown to kubelet after which the watch is probably behind.
	// It is unlikely that the order of queries is so wrong.
	listAfter = 16
	// askOnAfterMisfit is the number of further pods to query after finding one that should not be
	// requesting, because its promised devices are not on offer.
	askOnAfterMisfit = 8
)

// Asker is the requesting container, if it was found.
type Asker struct {
	Pod       *Pod
	Container *Container
	Want      []string // physical ids it should get, sorted; nil if none were chosen
	Source    string
	Ambiguous bool
}

// Verdict is the next step of Resolve: query kubelet about one pod (Ask) or all its pods (Survey), list
// the pods (List), or end: Who is the requesting container, nil if it was not found.
type Verdict struct {
	Ask    *Pod
	Survey bool
	List   bool
	Who    *Asker
}

// Resolve finds the requesting container. If it returns a query, it is called again with the result. It
// returns each query once.
//
// Kubelet admits one pod at a time. So if it knows a pod as active, and a container of that pod has the
// right size and should hold devices but holds none, that container is the one, and the search ends.
// Kubelet can also know pods without devices for other reasons: they were deleted before admission, or
// started before kubelet lost its checkpoint. One of those is taken only if no better one is in the live
// list either.
func Resolve(f *Facts) Verdict {
	order := candidates(f)
	var known, open []candidate // reported without devices; not queried, since kubelet does not respond
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

// wish returns the next query; left holds the remaining candidates in order. ok is false if more queries
// are not worth it.
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
		// The pod that was found should not be requesting. Kubelet finds pods by name, so its report may be
		// about another pod of that name that the watch has not delivered. If kubelet does not respond and the
		// watch was behind, more new pods may exist than those that came.
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

// Ref returns the identity of the requesting container.
func (a *Asker) Ref() ContainerRef { return ContainerRef{UID: a.Pod.UID, Container: a.Container.Name} }
