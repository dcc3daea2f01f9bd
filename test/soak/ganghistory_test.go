// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// unseen is how long a scheduler may not have received the end of a member: watches are late by three
	// seconds at most, and the machine may be slow.
	unseen = 30 * time.Second
	// soonest is the least time for which a gang must have been short of members before a rollback. The
	// scheduler waits for scheduleTimeout; half of it allows for late events.
	soonest = scheduleTimeout / 2
	// lasting is how long a gang must be whole for the scheduler to notice in any case.
	lasting = 5 * time.Second
	// theRest is how long the eviction of the members of a whole gang may take: each is retried after 1, 2,
	// 4 … s, and six consecutive failures do not happen.
	theRest = time.Minute
)

// member is the observed history of one pod of a gang's run.
type member struct {
	run      types.UID // of the gang's owner
	gang     string
	name     string
	created  time.Time
	boundBy  time.Time // the pod certainly had its node by then; zero: it had none yet
	finished bool      // it succeeded
	ended    time.Time // time at which its end was observed; zero: it lives
}

// history is the observed history of all gangs of a phase. A run is one life of a gang, by its owner's
// UID.
type history struct {
	mu      sync.Mutex
	members map[types.UID]*member // guarded by mu
	least   map[types.UID]int     // run -> the least minimum that it had; guarded by mu
	mixed   map[types.UID]bool    // runs that shared their name with another one; guarded by mu
	wholes  map[types.UID][]span  // run -> times in which it was observed whole; guarded by mu
}

// span is the time between a first and a last observation.
type span struct{ from, to time.Time }

func newHistory() *history {
	h := &history{}
	h.forget()
	return h
}

// forget clears the history for a phase that begins with no gang.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.members, h.least, h.mixed, h.wholes = map[types.UID]*member{}, map[types.UID]int{}, map[types.UID]bool{}, map[types.UID][]span{}
}

// asks records a minimum of a run.
func (h *history) asks(run types.UID, minimum int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, known := h.least[run]; !known || minimum < before {
		h.least[run] = minimum
	}
}

func (h *history) mix(run types.UID) {
	h.mu.Lock()
	h.mixed[run] = true
	h.mu.Unlock()
}

// whole records that enough members were bound at a time. Observations within some seconds of each other
// form one span.
func (h *history) whole(run types.UID, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	spans := h.wholes[run]
	if n := len(spans); n > 0 && at.Sub(spans[n-1].to) < 3*tendEvery {
		spans[n-1].to = at
		return
	}
	h.wholes[run] = append(spans, span{at, at})
}

// see records the present state of a member.
func (h *history) see(p *v1.Pod, deleted bool) {
	if p.Namespace != namespace || p.Labels[gangLabel] == "" || len(p.OwnerReferences) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.members[p.UID]
	if m == nil {
		m = &member{run: p.OwnerReferences[0].UID, gang: p.Labels[gangLabel], name: p.Name, created: p.CreationTimestamp.Time}
		h.members[p.UID] = m
	}
	if m.boundBy.IsZero() && p.Spec.NodeName != "" {
		m.boundBy = time.Now()
	}
	switch {
	case p.Status.Phase == v1.PodSucceeded && m.ended.IsZero():
		m.finished = true
	case deleted || p.DeletionTimestamp != nil || p.Status.Phase == v1.PodFailed:
		if m.ended.IsZero() {
			m.ended = time.Now()
		}
	}
}

// broken describes a gang of which a preemption has evicted some members and left others, fewer than its
// minimum. victims, of whom judged are some, are pods with the time of the event about their eviction.
// Members that ended by themselves after that, or so shortly before that the scheduler may not have
// received it, are taken as present.
func (h *history) broken(victims, judged map[types.UID]time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, at := range judged {
		v := h.members[uid]
		if v == nil || h.mixed[v.run] {
			continue
		}
		stayed, have := h.left(v.run, victims, at)
		if stayed > 0 && have < h.least[v.run] {
			return fmt.Sprintf("gang %s has %d members left of a minimum of %d, after %s was preempted and %d that were bound stayed",
				v.gang, have, h.least[v.run], v.name, stayed)
		}
	}
	return ""
}

// left returns how many members of a run that were bound at a time are still bound, and how many it has
// apart from the victims of preemptions. It needs h.mu.
func (h *history) left(run types.UID, victims map[types.UID]time.Time, at time.Time) (stayed, have int) {
	for uid, m := range h.members {
		_, victim := victims[uid]
		switch {
		case m.run != run || victim || m.created.After(at):
		case m.finished, !m.ended.IsZero() && m.ended.After(at.Add(-unseen)):
			have++
		case m.ended.IsZero() && !m.boundBy.IsZero():
			have++
			if m.boundBy.Before(at) {
				stayed++
			}
		}
	}
	return stayed, have
}

// known returns how many of some pods were members.
func (h *history) known(pods map[types.UID]time.Time) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid := range pods {
		if h.members[uid] != nil {
			n++
		}
	}
	return n
}

// hasty describes a gang that was rolled back so soon after it was whole that missing members cannot have
// been the reason.
func (h *history) hasty(victims map[types.UID]time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, at := range victims {
		v := h.members[uid]
		if v == nil {
			continue
		}
		for _, s := range h.wholes[v.run] {
			if after := at.Sub(s.to); s.from.Before(at) && s.to.Sub(s.from) >= lasting && after < soonest {
				return fmt.Sprintf("gang %s was rolled back %.1f s after it was whole: %s was evicted", v.gang, max(after, 0).Seconds(), v.name)
			}
		}
	}
	return ""
}

// told returns the pods with an event of a reason, with the time at which it was first written.
func (e *testEnv) told(ctx context.Context, reason string) (map[types.UID]time.Time, error) {
	out := map[types.UID]time.Time{}
	err := e.try(ctx, "list events", func(ctx context.Context) error {
		list, err := e.kube.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}
		for i := range list.Items {
			x := &list.Items[i]
			if at := toldAt(x); x.Regarding.Kind == "Pod" && (out[x.Regarding.UID].IsZero() || at.Before(out[x.Regarding.UID])) {
				out[x.Regarding.UID] = at
			}
		}
		return nil
	})
	return out, err
}

func toldAt(x *eventsv1.Event) time.Time {
	return cmp.Or(x.EventTime.Time, x.CreationTimestamp.Time)
}

// undisturbed leaves out victims whose gang may not have been evicted completely, since a scheduler ended
// within the time that this may take.
func undisturbed(victims map[types.UID]time.Time, deaths []time.Time) map[types.UID]time.Time {
	out := maps.Clone(victims)
	maps.DeleteFunc(out, func(_ types.UID, at time.Time) bool {
		return slices.ContainsFunc(deaths, func(death time.Time) bool { return death.After(at.Add(-time.Second)) && death.Before(at.Add(theRest)) })
	})
	return out
}

// judgeHistory fails if a gang was broken by a preemption, or rolled back although it was whole. Both are
// guaranteed only if schedulers receive all changes, so they are not judged in phases that may end their
// processes: there, watches of pods are cut, too.
func (e *testEnv) judgeHistory(ctx context.Context) {
	e.mu.Lock()
	deadly, deaths := e.deadly, slices.Clone(e.deaths)
	e.mu.Unlock()
	if deadly || e.pausedLately() {
		return
	}
	var left string
	var preempted, rolledBack map[types.UID]time.Time
	err := wait.PollUntilContextTimeout(ctx, calmPoll, patience, true, func(ctx context.Context) (bool, error) {
		var err error
		if preempted, err = e.told(ctx, "Preempted"); err == nil {
			rolledBack, err = e.told(ctx, "GangRolledBack")
		}
		if err != nil {
			return false, err
		}
		left = e.past.broken(preempted, undisturbed(preempted, deaths)) // the rest may still be evicted
		return left == "", nil
	})
	switch {
	case e.ctx.Err() != nil:
	case left != "":
		e.violate("%s", left)
	case err != nil:
		e.fail("read what was evicted: %v", err)
	default:
		if left = e.past.hasty(rolledBack); left != "" {
			e.violate("%s", left)
		}
		e.count("gangs: preempted members judged", e.past.known(undisturbed(preempted, deaths)))
		e.count("gangs: rolled-back members judged", e.past.known(rolledBack))
	}
}

// TestHistory checks which histories are broken, and which are explained.
func TestHistory(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	before, after := at.Add(-time.Minute), at.Add(time.Second)
	bound := member{run: "r", gang: "g", created: before, boundBy: before}
	gone := func(m member, when time.Time) member { m.ended = when; return m }
	for name, tc := range map[string]struct {
		members []member // the first is preempted
		mixed   bool
		whole   []span
		want    string // why it is broken
		hasty   bool
	}{
		"a member of a gang that needs it is preempted alone": {
			members: []member{gone(bound, after), bound, bound, bound},
			want:    "gang g has 3 members left of a minimum of 4, after  was preempted and 3 that were bound stayed",
		},
		"a member above the minimum is preempted": {members: []member{gone(bound, after), bound, bound, bound, bound}},
		"the gang goes whole":                     {members: []member{gone(bound, after)}},
		"the gang went whole and is there again": {
			members: []member{gone(bound, after), {run: "r", gang: "g", created: after, boundBy: after}},
		},
		"one that waited is bound after the gang went whole": {
			members: []member{gone(bound, after), {run: "r", gang: "g", created: before, boundBy: after}},
		},
		"another one ended later":         {members: []member{gone(bound, after), gone(bound, after), bound, bound, bound}},
		"another one had just ended":      {members: []member{gone(bound, after), gone(bound, at.Add(-time.Second)), bound, bound, bound}},
		"another one had ended long ago":  {members: []member{gone(bound, after), gone(bound, before), bound, bound, bound}, want: "gang g has 3 members left of a minimum of 4, after  was preempted and 3 that were bound stayed"},
		"one has done its work":           {members: []member{gone(bound, after), {run: "r", gang: "g", created: before, boundBy: before, finished: true}, bound, bound, bound}},
		"two gangs of one name":           {members: []member{gone(bound, after), bound, bound}, mixed: true},
		"it was rolled back while whole":  {members: []member{gone(bound, after)}, whole: []span{{before, at.Add(-time.Second)}}, hasty: true},
		"it was whole for a moment":       {members: []member{gone(bound, after)}, whole: []span{{at.Add(-2 * time.Second), at.Add(-time.Second)}}},
		"it was whole a long time before": {members: []member{gone(bound, after)}, whole: []span{{before.Add(-time.Minute), before}}},
		"it is whole again afterwards":    {members: []member{gone(bound, after)}, whole: []span{{after, after}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			for i := range tc.members {
				h.members[types.UID(strconv.Itoa(i))] = &tc.members[i]
			}
			h.least["r"], h.mixed["r"], h.wholes["r"] = 4, tc.mixed, slices.Clone(tc.whole)
			victims := map[types.UID]time.Time{"0": at}
			if got := h.broken(victims, victims); got != tc.want {
				t.Errorf("broken %q, want %q", got, tc.want)
			}
			if got := h.hasty(victims); (got != "") != tc.hasty {
				t.Errorf("rolled back too soon %q, want %t", got, tc.hasty)
			}
		})
	}
}
