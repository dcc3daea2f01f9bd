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

// foreignAgain is how long after it was found in the way an object of others is looked at again.
const foreignAgain = time.Minute

// reconciler keeps one pool after the other. There is one worker: what is pinned for one job must
// be seen before the next one is judged.
type reconciler struct {
	client    client.Client // reads from the cache
	live      client.Reader // reads from the API server
	events    record.EventRecorder
	metrics   *collector
	placement bool
}

// Reconcile brings Kueue's objects of a pool to what its spec and the cluster make of them, lets
// jobs in whose quota is pinned, and writes the pool's status.
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
	var again time.Duration // no event of ours says that an object of others is gone
	if isForeign(problem) {
		problem, again = nil, foreignAgain
	} else if len(plan.observed.Others) > 0 {
		again = foreignAgain
	}
	return ctrl.Result{RequeueAfter: again}, problem
}

// carryOut makes a plan and carries it out. The plan is nil if none could be made.
//
// Most events change nothing of Kueue's, which the cache tells. Where something is to be done it is
// judged again by what the API server has now: the cache may not show yet what the last round
// wrote, and then more would be promised, or a job that was let in taken for one that waits. Nor may
// it show a namespace yet, whose queue would be taken away.
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

// execute stops at the first Cohort or ClusterQueue that cannot be written: what grows must not be
// written before what shrinks. Where an object of others has the flavor's name, the queues that are
// there are still changed: they shrink with the pool's devices. One namespace's LocalQueue does not
// keep the others from theirs.
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
