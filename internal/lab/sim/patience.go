// SPDX-License-Identifier: Apache-2.0

package sim

import "math"

// waits reports whether the first job of a queue should wait for a better level though there
// is room for it. From the first moment with room the patience of every job of the queue runs.
func (r *replay) waits(q *queue, now float64) bool {
	r.look(q.jobs[0])
	if r.config.PatienceS == 0 || q.pods < 2 || !r.site.has(q.size, q.pods) {
		return false
	}
	for ; q.patient < len(q.jobs); q.patient++ {
		r.until[q.jobs[q.patient]] = now + r.config.PatienceS
	}
	return r.until[q.jobs[0]] > now && !r.site.holds(q.size, r.site.ideal(q.size, q.pods), q.pods)
}

// deadline returns when the next patience ends; infinity if none does.
func (r *replay) deadline(now float64) float64 {
	next := math.Inf(1)
	if r.config.PatienceS == 0 {
		return next
	}
	for _, q := range r.waiting {
		if q.patient > 0 && len(q.jobs) > 0 && r.until[q.jobs[0]] > now {
			next = min(next, r.until[q.jobs[0]])
		}
	}
	return next
}

// startGang plans a gang and takes the GPUs of the plan.
func (r *replay) startGang(q *queue, job int, now float64) ([]part, error) {
	done := func(bool) {}
	if r.config.Planning != nil {
		done = r.config.Planning(q.pods)
	}
	parts, err := r.gangs.plan(q.size, q.gpus, q.pods)
	done(parts != nil)
	if err != nil || parts == nil {
		return nil, err
	}
	if job >= r.measures.first {
		r.gang.start(r.site, q.size, parts, now-r.jobs[job].ArrivalS)
	}
	for _, p := range parts {
		r.take(p, q.size)
	}
	return parts, nil
}
