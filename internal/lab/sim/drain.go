// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"math"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// drain is the oldest gang that has waited for long. Its nodes are closed to younger jobs until it
// starts.
type drain struct {
	job    int // position in replay.jobs
	closed []bool
}

// look sets the site's view for a job: without the nodes that are closed to it.
func (r *replay) look(job int) {
	if r.site == nil {
		return
	}
	r.site.closed = nil
	if r.drain != nil && job > r.drain.job {
		r.site.closed = r.drain.closed
	}
}

// starve closes nodes for the first gang of a queue, which has no room, if it is time.
func (r *replay) starve(q *queue, now float64) error {
	job := q.jobs[0]
	if r.config.DrainAfterS == 0 || q.pods < 2 || now < r.drainsAt(job) || r.drain != nil && r.drain.job <= job {
		return nil
	}
	if r.config.GangPolicy == Ours && r.site.hasMixed(q.size, q.pods) {
		return nil // it has room on several models: nothing is closed for it, as in the scheduler
	}
	closed, err := r.site.drained(q)
	if closed != nil {
		r.drain = &drain{job: job, closed: closed}
	}
	return err
}

// drainsAt returns when nodes are closed for a gang that has not started.
func (r *replay) drainsAt(job int) float64 { return r.jobs[job].ArrivalS + r.config.DrainAfterS }

// placed opens the nodes again that were closed for a job, and has all waiting jobs retried.
func (r *replay) placed(job int) {
	if r.drain == nil || r.drain.job != job {
		return
	}
	r.drain = nil
	for _, q := range r.waiting {
		q.failed = 0
	}
}

// drainDeadline returns when the next gang will have waited for DrainAfterS; infinity if none will.
func (r *replay) drainDeadline(now float64) float64 {
	next := math.Inf(1)
	if r.config.DrainAfterS == 0 {
		return next
	}
	for _, q := range r.waiting {
		if q.pods > 1 && len(q.jobs) > 0 && r.drainsAt(q.jobs[0]) > now {
			next = min(next, r.drainsAt(q.jobs[0]))
		}
	}
	return next
}

// drained returns the nodes to close for a gang, by number: its place on the empty cluster, of equal
// places that with the most free GPUs. It is nil if the gang does not fit there.
func (x *site) drained(q *queue) ([]bool, error) {
	supply := make([]fabric.Supply, x.tree.Len())
	for at := range x.state.nodes {
		n, i := &x.state.nodes[at], x.number[at]
		whole := n.healthy &^ n.kind.degraded
		m := fabric.Machine{Tables: n.kind.tables, Healthy: whole, Free: whole}
		supply[i] = fabric.Supply{Slots: x.slotter.Slots(&m, q.gpus, x.state.sizes.constraints[q.size]), Preference: int64(x.free[i])}
	}
	plan, err := fabric.Place(x.tree, &fabric.Request{
		Shapes: []fabric.Shape{x.shape(q.size, q.gpus, q.pods, supply)}, Members: make([]fabric.Member, q.pods),
	})
	var none *fabric.UnplaceableError
	switch {
	case errors.As(err, &none):
		return nil, nil
	case err != nil:
		return nil, err
	}
	closed := make([]bool, x.tree.Len())
	for _, n := range plan.Nodes {
		closed[n] = true
	}
	return closed, nil
}
