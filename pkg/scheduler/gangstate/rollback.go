// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	// settleAfter is how long the write that a gang is whole has to arrive before it is written again.
	settleAfter = 10 * time.Second
	// settleEvery is the pause between two settlements of the same gang: an eviction may have been refused
	// by a disruption budget.
	settleEvery = 30 * time.Second
)

// Settlement is the check of a gang that is not whole according to its PodGroup, though no attempt is in
// progress. Either all members are bound and the write of that was lost, or the rest did not follow.
type Settlement struct {
	Key   gangrequest.Key
	Group *schedulingv1alpha1.PodGroup // from the informer
	Evict bool                         // the bound members are to be evicted, if the rest is still missing
}

// unsettled is the state of a gang that is not whole according to its PodGroup.
type unsettled struct {
	since    time.Time // since when this process, as the leader, has seen some members bound and not all; zero while none or all are
	cycles   bool      // since is in the time in which its cycles begin
	next     time.Time // when it is checked; zero: no member is bound
	evicting bool      // members are being evicted: no attempt may begin
}

// see records that some members are bound, and whether too few are.
func (u *unsettled) see(short, cycles bool, now time.Time) {
	switch {
	case !short:
		u.since = time.Time{} // when a member dies, the time begins again
	case u.since.IsZero() || cycles && !u.cycles:
		u.since, u.cycles = now, cycles
	}
}

// overdue reports whether the gang has been partly bound for the timeout; 0 is never.
func (u *unsettled) overdue(now time.Time, timeout time.Duration) bool {
	return timeout != 0 && !u.since.IsZero() && now.Sub(u.since) >= timeout
}

// Verdict is the result of a Settlement.
type Verdict struct {
	Whole  bool      // all members are bound: this is to be written
	Evict  []*v1.Pod // these members are to be evicted
	Reason string    // why nothing is to be done
}

// settle returns a Settlement if a gang is to be checked now, by the leader: according to the Lease,
// since no cycle may begin for long, or for ever if nothing is left to be placed. The time begins again
// with its first cycle: from then on it may be able to place the rest. The caller holds s.mu.
func (s *stepper) settle(x *gang, mayLead bool) *Settlement {
	bound, cycles := 0, s.leads.Load()
	if x.partial && (cycles || mayLead) {
		bound = x.bound()
	}
	now, u := s.clock.Now(), &x.unsettled
	if bound == 0 {
		u.since, u.next = time.Time{}, time.Time{}
		return nil
	}
	s.queue.readAgain(x)
	short := bound+len(x.read.Members.Ended) < int(max(1, x.group.Spec.MinMember))
	u.see(short, cycles, now)
	switch {
	case u.next.IsZero():
		u.next = now.Add(settleAfter)
		return nil
	case u.evicting || x.attempt != nil || x.busy > 0 || now.Before(u.next):
		return nil
	}
	look := &Settlement{Key: x.key, Group: x.group, Evict: short}
	if look.Evict && !u.overdue(now, s.config.ScheduleTimeout) {
		return nil
	}
	u.next, u.evicting = now.Add(settleEvery), look.Evict
	return look
}

// Settled ends a Settlement, for which this number of members were evicted.
func (a Attempts) Settled(s *Settlement, evicted int) {
	if evicted > 0 {
		rollBacks.Inc()
		rollBackEvictions.Add(float64(evicted))
	}
	a.do(func() (*gang, effects) {
		x := a.queue.gangs[s.Key]
		if x == nil {
			return nil, effects{}
		}
		x.unsettled.evicting = false
		return x, effects{activate: a.queue.next(x)}
	})
}

// Judge decides from the API server's present objects. The informers do not suffice: a bind, or the write
// that the gang is whole, may not have reached them yet. Only a gang whose recorded state is that it was
// never whole loses members, and only those of the served profiles.
func (a Attempts) Judge(s *Settlement, group *schedulingv1alpha1.PodGroup, pods []*v1.Pod) Verdict {
	state, known := gangrequest.StateOf(group)
	switch {
	case group == nil || group.UID != s.Group.UID:
		return Verdict{Reason: "its PodGroup is not there any more"}
	case !known:
		return Verdict{Reason: "its PodGroup has no state that can be read"}
	case state.Whole:
		return Verdict{Reason: "it was whole"}
	}
	var mine []*v1.Pod
	for _, pod := range pods {
		if key, ok := gangrequest.KeyOf(pod); ok && key == s.Key {
			mine = append(mine, pod)
		}
	}
	read := gangrequest.Read(s.Key, group, mine)
	if read.Err != nil {
		return Verdict{Reason: read.Err.Error()}
	}
	have, victims := len(read.Members.Ended), []*v1.Pod(nil)
	for _, pod := range read.Members.Live {
		if pod.Spec.NodeName == "" {
			continue
		}
		have++
		if a.queue.profiles[pod.Spec.SchedulerName] {
			victims = append(victims, pod)
		}
	}
	switch {
	case have >= read.Minimum:
		return Verdict{Whole: true}
	case !s.Evict:
		return Verdict{Reason: "some members are not bound"}
	case len(victims) == 0:
		return Verdict{Reason: "no member of our profiles is bound"}
	}
	return Verdict{Evict: victims}
}
