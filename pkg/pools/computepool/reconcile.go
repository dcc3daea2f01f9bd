// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"context"
	"errors"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/client-go/tools/record"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// foreignAgain is the interval after which an object of another owner that blocks a name is checked
// again.
const foreignAgain = time.Minute

// reconciler reconciles pools one after the other. It has one worker: the pins of one job must be seen
// before the next one is judged.
type reconciler struct {
	client    client.Client // reads from the cache
	live      client.Reader // reads from the API server
	events    record.EventRecorder
	metrics   *collector
	placement bool
}

// Reconcile brings Kueue's objects of a pool in line with its spec and the cluster, releases jobs whose
// quota is pinned, and writes the pool's status.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.ComputePool{}
	if err := r.client.Get(ctx, req.NamespacedName, pool); err != nil {
		r.metrics.forget(req.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pool.DeletionTimestamp == nil {
		if err := r.setFinalizer(ctx, pool, true); err != nil {
			return ctrl.Result{}, err
		}
	}
	plan, problem := r.carryOut(ctx, pool)
	if plan == nil {
		return ctrl.Result{}, problem
	}
	if plan.Drained {
		r.metrics.forget(pool.Name)
		return ctrl.Result{}, r.setFinalizer(ctx, pool, false)
	}
	if problem != nil {
		plan.observed.Problem = problem
	}
	status := StatusOf(pool, plan.observed)
	plan.metrics.status = status
	r.metrics.set(pool.Name, plan.metrics)
	if err := r.writeStatus(ctx, pool, &status); err != nil {
		return ctrl.Result{}, err
	}
	var again time.Duration // no watch reports that another owner's object is gone
	if isForeign(problem) {
		problem, again = nil, foreignAgain
	} else if len(plan.observed.Others) > 0 {
		again = foreignAgain
	}
	return ctrl.Result{RequeueAfter: again}, problem
}

// carryOut makes a plan and carries it out. The plan is nil if none could be made.
//
// Most events change none of Kueue's objects, which the cache is enough to find out. A plan with writes
// is made a second time from the API server's present objects: the cache may not show the writes of the
// last round yet, and then more would be promised, or a released job taken for a waiting one. It may
// also miss a new namespace, whose queue would be removed.
func (r *reconciler) carryOut(ctx context.Context, pool *v1alpha1.ComputePool) (*Plan, error) {
	cluster, err := r.readCluster(ctx)
	if err != nil {
		return nil, err
	}
	have, err := readObjects(ctx, r.client, pool.Name)
	if err != nil {
		return nil, err
	}
	plan := PlanFor(pool, cluster, have, r.placement)
	if plan.Idle() && !plan.Drained {
		return plan, nil
	}
	if have, err = readObjects(ctx, r.live, pool.Name); err != nil {
		return nil, err
	}
	if err := cluster.readTenants(ctx, r.live); err != nil {
		return nil, err
	}
	plan = PlanFor(pool, cluster, have, r.placement)
	return plan, r.execute(ctx, plan, have)
}

// execute carries out a plan, and stops at the first Cohort or ClusterQueue that cannot be written:
// growing objects must not be written before shrinking ones. Where another owner's object has the
// flavor's name, existing queues are still changed: they shrink with the pool's devices. One namespace's
// failed LocalQueue does not stop those of the others.
func (r *reconciler) execute(ctx context.Context, p *Plan, have *Objects) error {
	blocked := r.writeEach(ctx, p.Flavor)
	if blocked != nil && !isForeign(blocked) {
		return blocked
	}
	for _, w := range p.Quotas {
		if blocked != nil && w.Over == nil && !w.Delete {
			continue
		}
		if err := r.write(ctx, w); err != nil {
			return errors.Join(blocked, err)
		}
	}
	return errors.Join(blocked, r.writeEach(ctx, p.Local), r.writeEach(ctx, p.Last), r.tell(ctx, p.Tell), r.release(ctx, have.Jobs, p.Release))
}
