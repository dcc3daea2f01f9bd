// SPDX-License-Identifier: Apache-2.0

package gangstate

// do takes a step, and carries out its effects without the lock. No attempt begins while
// another's are being ended: what is released must not be of the next one.
func (g *Gangs) do(step func() (*gang, effects)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, e := step()
	if x == nil {
		return
	}
	if x.attempt != nil {
		x.attempt.stamp(g.clock.Now())
	}
	for e.any() {
		end, goOn := g.ends(x, &e), g.goesOn(x, &e)
		if e.over {
			g.close(x, e.done)
		}
		if !e.done { // else nothing is released
			g.holds.showHeld(x)
		}
		x.busy++
		g.mu.Unlock()
		end()
		g.mu.Lock()
		x.busy--
		g.mu.Unlock()
		goOn()
		g.mu.Lock()
		e = effects{}
		if x.busy == 0 && x.closed {
			x.closed = false
			e.activate = g.queue.next(x)
		}
	}
	// Another step may have forgotten it meanwhile, and its name be another gang's.
	if g.queue.gangs[x.key] == x && len(x.pods) == 0 && x.busy == 0 && x.attempt == nil && x.claim == nil {
		delete(g.queue.gangs, x.key)
	}
	g.holds.endDrained()
	g.holds.showHeld(x)
}

// ends returns what ends places and waits. It needs g.mu; what it returns does not.
func (g *Gangs) ends(x *gang, e *effects) func() {
	why := ""
	if x.attempt != nil {
		why = x.attempt.why
	}
	release, reject := e.release, e.reject
	return func() {
		if len(release) > 0 {
			g.scheduler.Release(release)
		}
		if len(reject) > 0 {
			g.scheduler.Reject(reject, why)
		}
	}
}

// goesOn returns what carries out the other effects. It needs g.mu; what it returns does not.
func (g *Gangs) goesOn(x *gang, e *effects) func() {
	doer, commit, activate, key, does := g.scheduler, x.commit, x.find(e.activate), x.key, *e
	return func() {
		if len(activate) > 0 {
			doer.Activate(activate)
		}
		if does.commit {
			doer.Commit(commit)
		}
		if len(does.allow) > 0 {
			doer.Allow(does.allow)
		}
		if len(does.say) > 0 {
			doer.Say(key, does.say, does.why)
		}
		if does.settle != nil {
			doer.Settle(does.settle)
		}
		if does.done {
			doer.Whole(commit)
		}
	}
}

// close forgets an attempt that is over. It needs g.mu.
func (g *Gangs) close(x *gang, done bool) {
	attempts.WithLabelValues(x.attempt.result(done, x.commit.Fresh)).Inc()
	if x.attempt.failed {
		g.holds.attemptFailed(x)
	}
	switch {
	case done:
		x.refusals.plans, x.pauses = 0, 0
		clear(x.refusals.nodes)
	case x.attempt.failed && x.waits == nil:
		pause := x.pause()
		if x.attempt.late {
			// Its places were held for so long in vain. A member that never comes must not keep
			// them from others most of the time.
			pause = max(pause, latePause*Timeout(len(x.attempt.members)), min(latePause*x.attempt.limit, maxAttempt))
		}
		x.waits = &Wait{Why: "gang: " + x.attempt.why, Until: g.clock.Now().Add(pause)}
	}
	x.attempt, x.commit, x.closed = nil, nil, true
	x.read = nil
}
