// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"container/heap"
	"context"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Streams of random numbers that one seed gives, so that what one part draws does
// not depend on how much another does.
const (
	streamTrace = iota + 1
	streamTimes
	streamPicks
)

// replay is one run of the event loop.
type replay struct {
	config   *Config
	state    state
	policy   policy
	jobs     []arrival // those that fit the empty cluster, by arrival
	measures measures

	waiting []*queue // by demand
	running departures
	started int
	scratch []part

	unplaceable int
	mishaps     mishaps
}

// queue holds the waiting jobs of one demand, first come first.
type queue struct {
	gpus, pods int
	jobs       []int // positions in replay.jobs, ascending
	failed     int   // the pass in which the first of them did not fit
}

// part is one pod's share of a node.
type part struct {
	node int
	set  nvtopo.Mask
}

func newReplay(c *Config) (*replay, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	weights := nvtopo.DefaultWeights()
	if c.Residual != nil {
		weights = *c.Residual
	}
	r := &replay{config: c}
	r.state.load(c.Nodes, weights)
	return r, nil
}

// prepare does what may take a while before the first event.
func (r *replay) prepare(ctx context.Context) error {
	seen := map[*kind]bool{}
	for i := range r.state.nodes {
		k := r.state.nodes[i].kind
		if seen[k] {
			continue
		}
		seen[k] = true
		if err := k.tables.Prepare(ctx); err != nil {
			return err
		}
	}
	r.state.constrain(r.config)
	fits := r.state.fits()
	r.jobs = r.config.arrivals(fits, int(r.state.gpus))
	for i := range r.config.Jobs {
		if j := &r.config.Jobs[i]; !fits(j) {
			r.unplaceable += j.Pods
		}
	}
	r.state.begin(r.jobs)
	var err error
	if r.policy, err = newPolicy(r.config, &r.state, &r.mishaps); err != nil {
		return err
	}
	r.measures.begin(r.jobs, r.config.WarmUp)
	return nil
}

// run replays arrivals and departures in order of time; of those at one time the
// departures come first. Waiting jobs are tried again at each departure in order of
// arrival, and later ones may pass those that do not fit, as in kube-scheduler.
func (r *replay) run(ctx context.Context) error {
	pass := 0
	for next := 0; next < len(r.jobs) || len(r.running) > 0; {
		if pass++; pass&0xff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if len(r.running) == 0 || next < len(r.jobs) && r.jobs[next].ArrivalS < r.running[0].at {
			r.measures.advance(&r.state, r.jobs[next].ArrivalS)
			r.arrive(next)
			next++
			continue
		}
		now := r.running[0].at
		r.measures.advance(&r.state, now)
		for len(r.running) > 0 && r.running[0].at == now {
			r.release(heap.Pop(&r.running).(departure).part)
		}
		r.retry(now, pass)
	}
	return nil
}

// arrive starts a job, or lets it wait behind others of its demand: what did not
// fit those does not fit this one.
func (r *replay) arrive(job int) {
	j := &r.jobs[job]
	i := slices.IndexFunc(r.waiting, func(q *queue) bool { return q.gpus == j.GPUs && q.pods == j.Pods })
	if i < 0 {
		i = len(r.waiting)
		r.waiting = append(r.waiting, &queue{gpus: j.GPUs, pods: j.Pods})
	}
	q := r.waiting[i]
	if len(q.jobs) > 0 || !r.start(job, j.ArrivalS) {
		q.jobs = append(q.jobs, job)
	}
}

// retry starts what fits now. All jobs of a demand are equal, so after the first
// that does not fit the demand is done for this pass.
func (r *replay) retry(now float64, pass int) {
	for {
		var first *queue
		for _, q := range r.waiting {
			if len(q.jobs) > 0 && q.failed != pass && (first == nil || q.jobs[0] < first.jobs[0]) {
				first = q
			}
		}
		if first == nil {
			return
		}
		if r.start(first.jobs[0], now) {
			first.jobs = first.jobs[1:]
		} else {
			first.failed = pass
		}
	}
}

// start places all pods of a job or none.
func (r *replay) start(job int, now float64) bool {
	j := &r.jobs[job]
	parts := r.scratch[:0]
	size := r.state.sizes.at(j.GPUs)
	for range j.Pods {
		at, set, ok := r.policy.place(j.GPUs)
		if !ok {
			r.measures.forget()
			for _, p := range parts {
				r.release(p)
			}
			return false
		}
		n := &r.state.nodes[at]
		r.measures.choice(n.kind.tables, set, r.state.best[size].best())
		r.state.change(at, n.free()&^set)
		r.policy.changed(at)
		parts = append(parts, part{at, set})
	}
	end := now + j.DurationS
	r.measures.start(job, j, now)
	if r.config.Observe != nil {
		for i, p := range parts {
			r.config.Observe(Placement{Job: j.at, Pod: i, Node: p.node, Set: p.set, StartS: now, EndS: end})
		}
	}
	r.started++
	for _, p := range parts {
		heap.Push(&r.running, departure{at: end, order: r.started, part: p})
	}
	r.scratch = parts
	return true
}

func (r *replay) release(p part) {
	r.state.change(p.node, r.state.nodes[p.node].free()|p.set)
	r.policy.changed(p.node)
}

// departure is the end of one pod.
type departure struct {
	at    float64
	order int // of start: ends at one time come in it
	part  part
}

// departures is a heap, the next one first.
type departures []departure

func (d departures) Len() int      { return len(d) }
func (d departures) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d departures) Less(i, j int) bool {
	if d[i].at != d[j].at {
		return d[i].at < d[j].at
	}
	return d[i].order < d[j].order
}
func (d *departures) Push(x any) { *d = append(*d, x.(departure)) }
func (d *departures) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}
