// SPDX-License-Identifier: Apache-2.0

package gangstate

import "k8s.io/apimachinery/pkg/types"

// leave takes note that a member of the attempt is gone. It counts there no more, but if it is on
// its way it may still come to wait at Permit, and would keep its GPUs until that wait is over: a
// pod joins the list of those that wait only after its Permit has returned, so whoever is told to
// end once may not hear it. It is told each second, for as long as it could wait. It needs g.mu.
func (g *Gangs) leave(x *gang, uid types.UID, why string) effects {
	if s := x.attempt.steps[uid]; x.attempt.has(uid) && (s == reserved || s == waiting) {
		g.strays[uid] = g.clock.Now().Add(x.attempt.limit + minAttempt)
	}
	return x.attempt.gone(uid, why)
}

// rejectStrays tells members that are gone to end.
func (g *Gangs) rejectStrays() {
	g.mu.Lock()
	uids, now := make([]types.UID, 0, len(g.strays)), g.clock.Now()
	for uid, until := range g.strays {
		if now.After(until) {
			delete(g.strays, uid)
			continue
		}
		uids = append(uids, uid)
	}
	g.mu.Unlock()
	if len(uids) > 0 {
		g.scheduler.Reject(uids, "gang: the member is gone")
	}
}
