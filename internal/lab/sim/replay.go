// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"container/heap"
	"context"
	"slices"

	"github.com/nvtopo/nvtopo/internal/lab/sim/judge"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Streams of random numbers from one seed, so that the numbers drawn by one part do not depend on how
// many another draws.
const (
	streamTrace = iota + 1
	streamTimes
	streamPicks
)

// replay is one run of the event loop.
type replay struct {
	config   *Config
	state    state
	policy   policy    // of one pod
	jobs     []arrival // those that fit the empty cluster, by arrival
	measures measures

	waiting []*queue // by demand
	running departures
	started int
	scratch []part

	unplaceable int
	mishaps     mishaps
	judge       *judge.Judge // nil: nothing is judged

	// With a fabric:
	site  *site
	gangs gangPolicy
	gang  *gangMeasures
	until []float64 // by job: when its patience ends; 0 before there is room
	drain *drain    // nil: no node is closed
}

// queue holds the waiting jobs of one demand, first come first.
type queue struct {
	gpus, pods int
	size       int   // position in sizes
	jobs       []int // positions in replay.jobs, ascending
	failed     int   // the pass in which the first of them did not start
	patient    int   // how many of the first have a time at which their patience ends
}

// part is one pod's share of a node.
type part struct {
	node   int
	set    nvtopo.Mask
	single bool // the job has no other pod
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
	if c.MessageBytes > 0 {
		r.judge = judge.New(c.MessageBytes)
	}
	r.state.load(c.Nodes, c.Tables.registry(weights))
	return r, nil
}

// prepare builds the slow parts before the first event.
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
	slowdown, err := r.meanSlowdown()
	if err != nil {
		return err
	}
	r.jobs = r.config.arrivals(fits, slowdown, int(r.state.gpus))
	for i := range r.config.Jobs {
		if j := &r.config.Jobs[i]; !fits(j) {
			r.unplaceable += j.Pods
		}
	}
	r.state.begin(r.jobs)
	r.measures.begin(r.jobs, r.config.WarmUp)
	if r.config.Fabric != nil {
		return r.onFabric()
	}
	r.policy, err = newPolicy(r.config, &r.state, &r.mishaps)
	return err
}

func (r *replay) onFabric() (err error) {
	if r.site, err = newSite(r.config, &r.state); err != nil {
		return err
	}
	r.gang, r.until = newGangMeasures(r.site.tree.Depth()), make([]float64, len(r.jobs))
	r.gangs, r.policy, err = newGangPolicy(r.config, &r.state, r.site, &r.mishaps)
	return err
}

// run replays arrivals, departures, ends of patience and of drain-after in order of time; of those at one
// time departures come first and arrivals last. Waiting jobs are tried again at each of the
// others in order of arrival, and later ones may pass those that do not fit, as in
// kube-scheduler.
func (r *replay) run(ctx context.Context) error {
	pass, now := 0, 0.0
	for next := 0; next < len(r.jobs) || len(r.running) > 0; {
		if pass++; pass&0xff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		event := min(r.deadline(now), r.drainDeadline(now))
		if len(r.running) > 0 {
			event = min(event, r.running[0].at)
		}
		if next < len(r.jobs) && r.jobs[next].ArrivalS < event {
			now = r.jobs[next].ArrivalS
			r.measures.advance(&r.state, now)
			if err := r.arrive(next); err != nil {
				return err
			}
			next++
			continue
		}
		now = event
		r.measures.advance(&r.state, now)
		for len(r.running) > 0 && r.running[0].at == now {
			r.release(heap.Pop(&r.running).(departure).part)
		}
		if err := r.retry(now, pass); err != nil {
			return err
		}
	}
	return nil
}

// arrive starts a job, or queues it behind others of its demand: if those do not fit, neither does this
// one.
func (r *replay) arrive(job int) error {
	j := &r.jobs[job]
	i := slices.IndexFunc(r.waiting, func(q *queue) bool { return q.gpus == j.GPUs && q.pods == j.Pods })
	if i < 0 {
		i = len(r.waiting)
		r.waiting = append(r.waiting, &queue{gpus: j.GPUs, pods: j.Pods, size: r.state.sizes.at(j.GPUs)})
	}
	q := r.waiting[i]
	q.jobs = append(q.jobs, job)
	if len(q.jobs) > 1 {
		r.waits(q, j.ArrivalS)
		return nil
	}
	_, err := r.try(q, j.ArrivalS)
	return err
}

// try starts the first job of a queue if it fits and need not wait for a better level.
func (r *replay) try(q *queue, now float64) (bool, error) {
	if r.waits(q, now) {
		return false, nil
	}
	ok, err := r.start(q, now)
	if ok {
		r.placed(q.jobs[0])
		q.jobs, q.patient = q.jobs[1:], max(0, q.patient-1)
	} else if err == nil {
		err = r.starve(q, now)
	}
	return ok, err
}

// retry starts the jobs that can start now. All jobs of a demand are equal, so after the first that does
// not start the demand is done for this pass.
func (r *replay) retry(now float64, pass int) error {
	for {
		var first *queue
		for _, q := range r.waiting {
			if len(q.jobs) > 0 && q.failed != pass && (first == nil || q.jobs[0] < first.jobs[0]) {
				first = q
			}
		}
		if first == nil {
			return nil
		}
		ok, err := r.try(first, now)
		if err != nil {
			return err
		}
		if !ok {
			first.failed = pass
		}
	}
}

// start places all pods of the first job of a queue or none.
func (r *replay) start(q *queue, now float64) (bool, error) {
	job := q.jobs[0]
	j := &r.jobs[job]
	var parts []part
	var ok bool
	if r.site != nil && q.pods > 1 {
		var err error
		if parts, err = r.startGang(q, job, now); err != nil || parts == nil {
			return false, err
		}
	} else if parts, ok = r.startPods(q); !ok {
		return false, nil
	}
	run, err := r.judged(job, j, parts, now)
	if err != nil {
		return false, err
	}
	end := now + run
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
	return true, nil
}

// startPods places one pod after the other.
func (r *replay) startPods(q *queue) ([]part, bool) {
	parts := r.scratch[:0]
	for range q.pods {
		at, set, ok := r.policy.place(q.gpus)
		if !ok {
			r.measures.forget()
			for _, p := range parts {
				r.release(p)
			}
			return nil, false
		}
		parts = append(parts, part{at, set, q.pods == 1})
		r.take(parts[len(parts)-1], q.size)
	}
	r.scratch = parts
	return parts, true
}

func (r *replay) take(p part, size int) {
	n := &r.state.nodes[p.node]
	r.measures.choice(n.kind.tables, p.set, r.state.best[size].best())
	n.singles += truth(p.single)
	n.pods = append(n.pods, p.set.Len())
	r.change(p.node, n.free()&^p.set)
}

func (r *replay) release(p part) {
	n := &r.state.nodes[p.node]
	n.singles -= truth(p.single)
	i := slices.Index(n.pods, p.set.Len())
	n.pods = slices.Delete(n.pods, i, i+1)
	r.change(p.node, n.free()|p.set)
}

func (r *replay) change(node int, free nvtopo.Mask) {
	r.state.change(node, free)
	r.policy.changed(node)
	if r.site != nil {
		r.site.changed(node)
	}
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
