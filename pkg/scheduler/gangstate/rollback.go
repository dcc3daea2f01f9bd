// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	// settleAfter is how long the write that a gang is whole has to arrive before it is written
	// again.
	settleAfter = 10 * time.Second
	// settleEvery is the pause between two looks at the same gang: an eviction may have been
	// refused by a disruption budget.
	settleEvery = 30 * time.Second
)

// Settlement is the look at a gang whose PodGroup says that it is not whole, though no attempt is
// on its way. Either all members are bound and the write of that was lost, or the rest did
// not follow.
type Settlement struct {
	Key   gangrequest.Key
	Group *schedulingv1alpha1.PodGroup // as the informer has it
	Evict bool                         // the bound members are to go, if the rest is still missing
}

// unsettled is what is known of a gang whose PodGroup says that it is not whole.
type unsettled struct {
	since    time.Time // since when this process, which leads, has seen some members bound and not all; zero while none or all are
	cycles   bool      // since is of the time in which its cycles begin
	next     time.Time // when it is looked at; zero: no member is bound
	evicting bool      // members are being evicted: no attempt may begin
}

// see takes note that some members are bound, and whether too few are.
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

// Verdict is what is to be done about a gang.
type Verdict struct {
	Whole  bool      // all members are bound: that is to be written
	Evict  []*v1.Pod // these members are to be evicted
	Reason string    // why nothing is to be done
}

// settle says whether a gang is to be looked at now, by the process that leads: by the Lease, since no
// cycle may begin for long, or for ever where nothing is left to be placed. The time begins anew with
// its first cycle: from then on it can perhaps place the rest. It needs s.mu.
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

// Settled ends a Settlement, for which so many members were evicted.
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

// Judge decides by what the API server has now. The informers do not suffice: a bind, or the
// write that the gang is whole, may be there that they have not brought yet. Only a gang that
// says that it was never whole loses members, and only those of our profiles.
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
