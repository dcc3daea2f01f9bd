// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// extraRetry is the time after which an extra replica that failed or was evicted is created again. It is
// longer than the scheduler takes to place a gang, and short compared with a job.
const extraRetry = time.Minute

// step is one change to carry out. One field is set, except that relabel also has labels.
type step struct {
	serve  *v1.Service
	create *batchv1.Job
	remove *batchv1.Job
	// activate or deactivate is the Workload to change.
	activate, deactivate *kueue.Workload
	// relabel is the Job that gets the labels.
	relabel *batchv1.Job
	labels  map[string]string
}

// plan returns the next steps of a job. It starts from the existing objects each time, so a step that
// was lost or done twice does no harm. again is the time after which to plan again without a change; 0:
// not at all.
func plan(ej *v1alpha1.ElasticJob, r *Rendered, s *state, now time.Time) (steps []step, again time.Duration) {
	p := &planner{ej: ej, r: r, s: s, now: now}
	p.base()
	p.extras()
	return p.steps, p.again
}

type planner struct {
	ej    *v1alpha1.ElasticJob
	r     *Rendered // nil while the job's objects cannot be rendered
	s     *state
	now   time.Time
	steps []step
	again time.Duration
}

func (p *planner) add(s step) { p.steps = append(p.steps, s) }

func (p *planner) base() {
	base := p.s.base
	switch {
	case base == nil:
		if p.r != nil && !p.ej.Spec.Suspend && !ended(p.ej) {
			p.serve()
			p.add(step{create: p.r.Base})
		}
	case base.finished():
	case ended(p.ej):
		p.retire(base)
	case base.deactivatedByKueue():
	case p.ej.Spec.Suspend && protected(p.ej):
		// The pool keeps the pins for as long as the Job exists, and the gate cannot be closed again:
		// the job passes it a second time when it is resumed.
		p.retire(base)
	case p.ej.Spec.Suspend:
		p.suspend(base)
	case base.markedByUs(): // a mark left in place would undo a later stop by Kueue
		p.add(step{activate: base.workload})
	}
	if base != nil && !base.finished() && p.r != nil {
		p.serve()
		p.relabel(base, p.r.Base)
	}
}

// suspend deactivates the base's Workload until the job is resumed. It also marks a Workload that a
// person has deactivated before, so that resuming the job starts it.
func (p *planner) suspend(base *part) {
	if base.workload != nil && (base.active() || !base.markedByUs()) {
		p.add(step{deactivate: base.workload})
	}
}

// serve creates the Service before the pods, which look each other up as soon as they start.
func (p *planner) serve() {
	if !p.s.served {
		p.add(step{serve: p.r.Service})
	}
}

// extras creates the wanted replicas that do not exist, and removes the unwanted ones, the highest
// first.
func (p *planner) extras() {
	scaling := &p.ej.Spec.Scaling
	end := scaling.MinReplicas
	if p.growing() {
		end = scaling.MaxReplicas
	}
	order := p.s.order()
	for i := len(order) - 1; i >= 0; i-- {
		n := order[i]
		extra := p.s.extras[n]
		if n < scaling.MinReplicas || n >= end || !extra.active() || p.due(&extra) {
			p.retire(&extra)
		} else if p.r != nil && !extra.finished() {
			p.relabel(&extra, p.r.Extra(n))
		}
	}
	for n := scaling.MinReplicas; n < end && p.r != nil; n++ {
		if _, exists := p.s.extras[n]; !exists {
			p.add(step{create: p.r.Extra(n)})
		}
	}
}

// growing reports whether the job may have extra replicas at all.
func (p *planner) growing() bool {
	return p.s.base.admitted() && !p.ej.Spec.Suspend && !ended(p.ej) && staticRendezvous(p.ej) == ""
}

// due reports whether an extra failed long enough ago to be created again.
func (p *planner) due(extra *part) bool {
	at, failed := extra.mayRetry()
	if !failed {
		return false
	}
	wait := at.Sub(p.now)
	if wait > 0 && (p.again == 0 || wait < p.again) {
		p.again = wait
	}
	return wait <= 0
}

// retire deactivates a part's Workload, and later deletes the Job. In this order, because Kueue would
// give the quota of a deleted Job away while its pods still run.
func (p *planner) retire(t *part) {
	switch {
	case t.job.DeletionTimestamp != nil:
	case t.finished() || t.idle() && t.suspended() && !t.is(kueue.WorkloadQuotaReserved):
		p.add(step{remove: t.job})
	default:
		p.deactivate(t)
	}
}

func (p *planner) deactivate(t *part) {
	if t.workload != nil && t.active() {
		p.add(step{deactivate: t.workload})
	}
}

// relabel updates a Job's labels to the ElasticJob's priority, queue and time. Kueue accepts another
// priority at any time, the others only while the Job is suspended.
func (p *planner) relabel(t *part, want *batchv1.Job) {
	keys := []string{kueue.LabelPriorityClass}
	if t.suspended() && !t.is(kueue.WorkloadQuotaReserved) {
		keys = append(keys, kueue.LabelQueue, kueue.LabelMaxExecutionSeconds)
	}
	labels := map[string]string{}
	for _, key := range keys {
		if t.job.Labels[key] != want.Labels[key] {
			labels[key] = want.Labels[key] // "" removes it
		}
	}
	if len(labels) > 0 {
		p.add(step{relabel: t.job, labels: maps.Clone(labels)})
	}
}
