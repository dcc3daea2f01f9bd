// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// reservationPhase is where a reservation is on its way:
//
//	Reserve ──► reserved ──PreBind/Bind began──► binding ──Unreserve──► doubtful ──live GET shows no node──► dropped
//	               │ Unreserve                      │ store shows it        │ store shows it
//	               ▼                                ▼                       ▼
//	            dropped                          confirmed ◄────────────────┘
//
// back from binding to reserved when nothing of the attempt is under way any more (a
// refusal, or the end of the PATCH before the Binding begins),
// and from any phase to void when the pod is gone or bound with another choice.
// Sweep drops confirmed and void reservations once a cycle's snapshot can replace them.
type reservationPhase uint8

const (
	reserved reservationPhase = iota
	binding
	doubtful
	confirmed
	void
)

var phaseNames = [...]string{"reserved", "binding", "doubtful", "confirmed", "void"}

// settled reservations wait for Sweep only.
func (p reservationPhase) settled() bool { return p >= confirmed }

// reservation is one choice on its way to its pod. A pod may have several: doubtful ones of
// earlier attempts beside the present one, all on record until it is known
// where the pod went.
type reservation struct {
	uid       types.UID
	namespace string
	name      string
	node      string
	alloc     *allocation.Allocation
	request   *podrequest.Request
	phase     reservationPhase
	since     time.Time // of the phase
	written   bool      // the annotations are on the pod
	writing   bool      // counted in State.writing
	times     int       // how many attempts before had the same choice
	reading   bool      // its pod is being read, and counted in State.resolving
	read      time.Time // when that began last
	// version of the bound pod that settled the reservation; empty if it never was bound.
	version string
}

// reservationOf returns the pod's present reservation on a node; it needs s.mu.
func (s *State) reservationOf(uid types.UID, node string) *reservation {
	for _, c := range s.reservations[uid] {
		if c.node == node && (c.phase == reserved || c.phase == binding) {
			return c
		}
	}
	return nil
}

// insert needs s.mu.
func (s *State) insert(c *reservation) {
	x := s.cells.ensure(c.node)
	s.reservations[c.uid] = append(s.reservations[c.uid], c)
	x.reservations = append(x.reservations, c)
	x.candidate.Revision.Add(1)
	s.touch(x)
}

// drop needs s.mu.
func (s *State) drop(c *reservation) {
	s.setPhase(c, void)
	x := s.cells.ensure(c.node)
	same := func(o *reservation) bool { return o == c }
	x.reservations = slices.DeleteFunc(x.reservations, same)
	if rest := slices.DeleteFunc(s.reservations[c.uid], same); len(rest) == 0 {
		delete(s.reservations, c.uid)
	} else {
		s.reservations[c.uid] = rest
	}
	x.candidate.Revision.Add(1)
	s.touch(x)
}

// setPhase needs s.mu.
func (s *State) setPhase(c *reservation, p reservationPhase) {
	if p != reserved {
		s.countWriting(c, p == binding)
	}
	if was, is := c.phase == doubtful, p == doubtful; was != is {
		by := int32(1)
		if was {
			by = -1
		}
		s.cells.ensure(c.node).doubts.Add(by)
	}
	c.phase, c.since = p, s.clock.Now()
}

// Unreserve takes back what Reserve promised. If binding had begun, nobody
// knows whether the API server carried it out: the reservation stays, doubtful, until
// a live read later than the request timeout decides. But an earlier attempt may have
// bound the pod already, while this one stood reserved: that decides at once.
func (s *State) Unreserve(uid types.UID, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.reservationOf(uid, node)
	if c == nil {
		return
	}
	if c.phase == binding {
		if pod := s.pods.pod(c.namespace, c.name, uid); pod != nil && pod.Spec.NodeName != "" && s.decidedBy(c, pod, s.allocationOf(pod, pod.Spec.NodeName)) {
			s.onFreed()
		}
		if c.phase == binding {
			s.doubt(c)
		}
		return
	}
	if c.written {
		s.noted[uid] = struct{}{}
	}
	s.retriedInVain(c)
	s.drop(c)
	s.touchNode(node) // the scheduler's cache forgets the pod after this
}

// BindingBegan marks that the first write of the choice may now happen, the PATCH or the
// Binding: from here on the API server may carry it out.
func (s *State) BindingBegan(uid types.UID, node string) { s.changePhase(uid, node, reserved, binding) }

// BindingRefused marks that the API server refused the write for certain, so
// nothing was bound.
func (s *State) BindingRefused(uid types.UID, node string) {
	s.changePhase(uid, node, binding, reserved)
}

// WriteEnded marks that the PATCH of the choice was sent once and is done, and that no
// Binding is sent before BindingBegan is called again: if the attempt ends before that,
// nothing of it can come late. While an earlier attempt is in doubt this does not help:
// its Binding may come late, to a pod that carries this choice.
func (s *State) WriteEnded(uid types.UID, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.reservationOf(uid, node); c != nil && c.phase == binding && len(s.reservations[uid]) == 1 {
		s.setPhase(c, reserved)
	}
}

func (s *State) changePhase(uid types.UID, node string, from, to reservationPhase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.reservationOf(uid, node); c != nil && c.phase == from {
		s.setPhase(c, to)
	}
}

// podThere takes note that the informer has the pod.
func (s *State) podThere(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.terminated.back(uid)
}

// podBound is called with the informer's copy of a bound pod. A reservation the copy
// confirms or refutes is dropped by Sweep, never here, because the running
// cycle's snapshot may still be older than this event.
func (s *State) podBound(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.noted, pod.UID)
	h := s.endNominated(pod.UID)
	if h == nil && len(s.reservations[pod.UID]) == 0 {
		return
	}
	a := s.allocationOf(pod, pod.Spec.NodeName)
	freed := h != nil && !h.took(pod.Spec.NodeName, a)
	for _, c := range s.reservations[pod.UID] {
		if c.node == pod.Spec.NodeName {
			s.countWriting(c, false) // whatever became of the choice
		}
		freed = s.decidedBy(c, pod, a) || freed
	}
	if freed {
		s.onFreed()
	}
}

// decidedBy settles a reservation by its pod, which is bound with the allocation a, nil if it has
// none that counts, where this decides, and reports whether devices came free. A pod is
// bound once, and the PATCH of an attempt is refused from then on: what it was bound with
// decides against every reservation that says otherwise and whose own writes may have begun. It
// needs s.mu.
func (s *State) decidedBy(c *reservation, pod *v1.Pod, a *allocation.Allocation) (freed bool) {
	switch {
	case c.phase.settled():
	case a != nil && a.Equal(c.alloc):
		s.settle(c, confirmed)
		c.version = pod.ResourceVersion
	case c.phase != reserved && (a != nil || c.node != pod.Spec.NodeName):
		s.settle(c, void)
		c.version = pod.ResourceVersion
		return true
	}
	return false
}

// podGone is called when the informer no longer has the pod: deleted, or
// finished (the scheduler's informer drops finished pods). The scheduler's own
// handler may have woken a pod before, which then still saw the reservation.
func (s *State) podGone(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	freed := s.endNominated(uid) != nil
	s.terminated.add(uid, s.clock.Now())
	delete(s.noted, uid)
	for _, c := range s.reservations[uid] {
		freed = freed || c.phase != void
		s.settle(c, void)
	}
	s.parsed.forget(uid)
	if freed {
		s.onFreed()
	}
}

// settle needs s.mu.
func (s *State) settle(c *reservation, p reservationPhase) {
	if !c.phase.settled() {
		s.settledCount++
	}
	s.setPhase(c, p)
	s.touchNode(c.node) // which need not be the pod's
}

// decide settles a doubtful reservation by a live read of its pod, nil if there is no
// such pod any more. It reports whether the reservation's devices came free.
func (s *State) decide(c *reservation, pod *v1.Pod) bool {
	if pod != nil && pod.UID == c.uid && pod.Spec.NodeName != "" {
		s.podEvent(nil, pod)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.phase != doubtful { // an event settled it meanwhile
		return false
	}
	if pod != nil && s.mayBeBoundWith(c, pod) {
		return false
	}
	if pod != nil && pod.UID == c.uid && pod.Annotations[allocation.Key] != "" {
		s.noted[c.uid] = struct{}{} // the informer may not say so for a while
	}
	s.drop(c)
	return true
}

// mayBeBoundWith reports whether a waiting pod carries a doubtful reservation's choice,
// from a PATCH that came late, while a later attempt has done its own PATCH and
// goes on to bind it. It needs s.mu.
func (s *State) mayBeBoundWith(c *reservation, pod *v1.Pod) bool {
	text, ok := pod.Annotations[allocation.Key]
	if !ok || len(s.reservations[c.uid]) == 1 {
		return false
	}
	a, err := allocation.Parse(text)
	return err == nil && a.Equal(c.alloc)
}

// Sweep drops settled reservations which the given snapshot can replace. Call it at the
// start of a scheduling cycle, where nothing else reads an older snapshot.
func (s *State) Sweep(snapshot fwk.NodeInfoLister) {
	s.swept.Store(s.clock.Now().UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireNominated()
	if s.settledCount == 0 {
		return
	}
	s.settledCount = 0
	for _, cs := range s.reservations {
		for _, c := range slices.Clone(cs) {
			if !c.phase.settled() {
				continue
			}
			if s.replaceable(c, snapshot) {
				s.drop(c)
			} else {
				s.settledCount++
			}
		}
	}
}

// replaceable reports whether the snapshot alone now says what the reservation said.
// A confirmed reservation needs its pod listed with an allocation: the scheduler's
// cache may have forgotten a pod whose binding it believed lost, and not have
// heard yet that it was carried out. And it must be the pod as of its binding:
// an assumed pod has the annotation that an earlier attempt left on it, and goes
// again when the present attempt fails.
func (s *State) replaceable(c *reservation, snapshot fwk.NodeInfoLister) bool {
	info, err := snapshot.Get(c.node)
	if err != nil {
		return true // the node is gone, and with it all that could be chosen there
	}
	for _, pi := range info.GetPods() {
		if pod := pi.GetPod(); pod.UID == c.uid {
			cmp, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, c.version)
			return err == nil && cmp >= 0 && s.allocationOf(pod, c.node) != nil
		}
	}
	return c.phase == void
}

// Dump returns the whole table ordered by pod.
func (s *State) Dump() []diagnosis.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []diagnosis.Reservation
	for _, cs := range s.reservations {
		for _, c := range cs {
			l := diagnosis.Reservation{Pod: c.namespace + "/" + c.name, Node: c.node, UID: c.uid, Phase: phaseNames[c.phase], Since: c.since}
			for _, ca := range c.alloc.Containers {
				l.GPUs = append(l.GPUs, ca.GPUs...)
			}
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b diagnosis.Reservation) int {
		return slices.Compare([]string{a.Pod, string(a.UID), a.Node}, []string{b.Pod, string(b.UID), b.Node})
	})
	return out
}
