// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	// maxShares is the most shares that the API admits in a status.
	maxShares = 1024
	// maxNamed is the most nodes or pods that a message names.
	maxNamed = 5
)

// Reasons of the conditions.
const (
	reasonAsExpected      = "AsExpected"
	reasonQueuesActive    = "QueuesActive"
	reasonQueueNotActive  = "QueueNotActive"
	reasonWriteFailed     = "WriteFailed"
	reasonNotOurs         = "NotOfThisPool"
	reasonDeleting        = "JobsHoldQuota"
	reasonDeletingKueue   = "KueueHoldsObjects"
	reasonOtherNumber     = "OtherNumberOfDevices"
	reasonTooFewDevices   = "TooFewDevices"
	reasonReserveTooSmall = "ReserveTooSmall"
	reasonReserveTooLarge = "ReserveTooLarge"
	reasonForeignPods     = "ForeignPods"
	reasonOtherPools      = "NodesOfOtherPools"
	reasonTenantsLess     = "TenantsGuaranteeLess"
	reasonQueuesLess      = "QueuesGuaranteeLess"
	reasonTooManyShares   = "TooManyShares"
)

// Observed is the input of a pool's status.
type Observed struct {
	Capacity *Capacity
	Layout   *Layout
	Pins     Pins
	Short    int64
	Queues   map[string]*kueue.ClusterQueue // by name
	Gated    map[string]int32               // jobs that wait to be pinned, by ClusterQueue
	Others   []string                       // LocalQueues of other owners with the name of one of the pool's
	Going    []string                       // objects that are being deleted and still exist
	Problem  error                          // error that kept the objects from being written, or nil
}

// StatusOf returns a pool's status: its devices, their holders, and its conditions. Conditions of other
// types are kept, and unchanged ones keep their transition time.
func StatusOf(pool *v1alpha1.ComputePool, o *Observed) v1alpha1.ComputePoolStatus {
	c := o.Capacity
	states, shares := c.States(), o.shares()
	s := v1alpha1.ComputePoolStatus{
		ObservedGeneration: pool.Generation,
		TotalCapacity:      bounded(c.Total()),
		ReservedCapacity:   bounded(c.Reserved()),
		AllocatedCapacity:  bounded(c.Held()),
		AvailableCapacity:  bounded(c.Available()),
		Discovered:         bounded(c.Discovered()),
		Nodes:              bounded(c.Nodes),
		ReadyNodes:         bounded(c.ReadyNodes),
		UtilizationPercent: bounded(c.Utilization()),
		States:             &states,
		Shares:             shares[:min(len(shares), maxShares)],
		Conditions:         slices.Clone(pool.Status.Conditions),
	}
	for _, condition := range o.conditions(pool, len(shares)) {
		condition.ObservedGeneration = pool.Generation
		meta.SetStatusCondition(&s.Conditions, condition)
	}
	s.Phase = phase(s.Conditions)
	return s
}

func phase(conditions []metav1.Condition) v1alpha1.PoolPhase {
	switch {
	case !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady):
		return v1alpha1.PoolPending
	case meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionGuaranteesOvercommitted):
		return v1alpha1.PoolDegraded
	default:
		return v1alpha1.PoolReady
	}
}

// shares returns the usage of each group, and of each queue of a group that has several.
func (o *Observed) shares() []v1alpha1.PoolShare {
	var out []v1alpha1.PoolShare
	for i := range o.Layout.groups {
		g := &o.Layout.groups[i]
		own := make([]v1alpha1.PoolShare, 0, len(g.queues))
		for j := range g.queues {
			q := &g.queues[j]
			own = append(own, o.share(q))
		}
		if g.cohort != "" {
			out = append(out, sum(g, own))
		}
		out = append(out, own...)
	}
	return out
}

func (o *Observed) share(q *queue) v1alpha1.PoolShare {
	s := v1alpha1.PoolShare{
		Tenant: q.tenant, Queue: q.queue, Guaranteed: bounded(q.guaranteed), Limit: bounded(q.limit),
		Pinned: bounded(o.Capacity.inDevices(o.Pins[q.name])), Pending: o.Gated[q.name],
	}
	if cq := o.Queues[q.name]; cq != nil {
		used := Amounts{}
		for _, f := range cq.Status.FlavorsReservation {
			for i := range f.Resources {
				used[f.Resources[i].Name] += f.Resources[i].Total.Value()
			}
		}
		s.Used = bounded(o.Capacity.inDevices(used))
		s.Pending += cq.Status.PendingWorkloads
	}
	s.Borrowed = max(0, s.Used-max(s.Guaranteed, s.Pinned))
	return s
}

// sum is the share of a group of queues.
func sum(g *group, queues []v1alpha1.PoolShare) v1alpha1.PoolShare {
	s := v1alpha1.PoolShare{Tenant: g.tenant, Queue: g.queue, Guaranteed: bounded(g.guaranteed), Limit: bounded(g.limit)}
	for i := range queues {
		s.Pinned += queues[i].Pinned
		s.Used += queues[i].Used
		s.Pending += queues[i].Pending
	}
	s.Borrowed = max(0, s.Used-max(s.Guaranteed, s.Pinned))
	return s
}

func bounded(n int64) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// ownConditions returns the conditions of the types that this controller writes.
func ownConditions(all []metav1.Condition) []metav1.Condition {
	types := []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionCapacityMismatch, v1alpha1.ConditionGuaranteesOvercommitted,
		v1alpha1.ConditionReserveAdvice, v1alpha1.ConditionForeignUse, v1alpha1.ConditionNodesShared, v1alpha1.ConditionGuaranteesReduced,
		v1alpha1.ConditionSharesCut,
	}
	return slices.DeleteFunc(all, func(c metav1.Condition) bool { return !slices.Contains(types, c.Type) })
}

// conditions returns the conditions of a pool; shares is the number of its shares before the cut.
func (o *Observed) conditions(pool *v1alpha1.ComputePool, shares int) []metav1.Condition {
	c := o.Capacity
	return []metav1.Condition{
		o.ready(pool),
		condition(v1alpha1.ConditionCapacityMismatch, c.Discovered() != c.total, reasonOtherNumber,
			fmt.Sprintf("spec.capacity.total is %d, and the nodes have %d devices", c.total, c.Discovered())),
		condition(v1alpha1.ConditionGuaranteesOvercommitted, o.Short > 0, reasonTooFewDevices,
			fmt.Sprintf("%d devices more are guaranteed or pinned than tenants can share: %d", o.Short, c.inDevices(c.ForTenants()))),
		reserveAdvice(c),
		condition(v1alpha1.ConditionForeignUse, c.Foreign() > 0, reasonForeignPods,
			fmt.Sprintf("pods outside of tenants' namespaces hold %d devices: %s", c.Foreign(), some(c.ForeignPods))),
		condition(v1alpha1.ConditionNodesShared, len(c.Taken) > 0, reasonOtherPools,
			"spec.nodeSelector picks nodes that are counted in another pool, the first by name: "+some(nodesTaken(c.Taken))),
		guaranteesReduced(o.Layout),
		condition(v1alpha1.ConditionSharesCut, shares > maxShares, reasonTooManyShares,
			fmt.Sprintf("status.shares has the first %d of %d shares, and metrics of tenants are of these; quota is by all of them: kubectl get clusterqueues -l %s=%s",
				maxShares, shares, names.LabelManaged, pool.Name)),
	}
}

// ready returns the condition that is true while Kueue admits jobs according to the pool's spec.
func (o *Observed) ready(pool *v1alpha1.ComputePool) metav1.Condition {
	out := condition(v1alpha1.ConditionReady, false, "", "")
	switch bad := o.notActive(); {
	case pool.DeletionTimestamp != nil:
		out.Reason, out.Message = o.deleting()
		if o.Problem != nil {
			out.Message = limited(out.Message + "; " + o.Problem.Error())
		}
	case o.Problem != nil:
		out.Reason, out.Message = reasonWriteFailed, limited(o.Problem.Error())
		if isForeign(o.Problem) {
			out.Reason = reasonNotOurs
		}
	case len(bad) > 0:
		out.Reason, out.Message = reasonQueueNotActive, limited("Kueue does not admit jobs in "+some(bad))
	default:
		out.Status, out.Reason, out.Message = metav1.ConditionTrue, reasonQueuesActive, "Kueue admits jobs by the pool's spec"
		if pool.Spec.StopPolicy == v1alpha1.StopHold || pool.Spec.StopPolicy == v1alpha1.StopHoldAndDrain {
			out.Message = "spec.stopPolicy lets no more jobs in"
		}
		if len(o.Others) > 0 {
			out.Message = limited(out.Message + "; not through what has its queue's name and is not the pool's: " + some(o.Others))
		}
	}
	return out
}

// notActive lists the queues that Kueue does not serve though they are not stopped, with the reason.
func (o *Observed) notActive() []string {
	var out []string
	for q := range o.Layout.all() {
		cq := o.Queues[q.name]
		if cq == nil {
			out = append(out, "ClusterQueue "+q.name+": it is not there yet")
			continue
		}
		active := meta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
		switch {
		case active == nil:
			out = append(out, "ClusterQueue "+q.name+": Kueue has not seen it yet")
		case active.Status != metav1.ConditionTrue && active.Reason != kueue.ClusterQueueStopped:
			out = append(out, "ClusterQueue "+q.name+": "+active.Message)
		}
	}
	return out
}

// deleting returns reason and message for a pool whose deletion waits for jobs or for Kueue.
func (o *Observed) deleting() (reason, message string) {
	inUse, unseen := o.inUse(), o.unseen()
	switch {
	case len(inUse) > 0:
		return reasonDeleting, limited("the pool is being deleted, and waits for jobs that hold quota in " + some(inUse))
	case len(unseen) > 0:
		return reasonDeletingKueue, limited("the pool is being deleted, and waits for Kueue to see that no more jobs are let in: ClusterQueue " + some(unseen))
	case len(o.Going) > 0:
		return reasonDeletingKueue, limited("the pool is being deleted, and waits for Kueue to let go of " + some(o.Going))
	}
	return reasonDeletingKueue, "the pool is being deleted, and its objects of Kueue go"
}

// unseen lists the queues whose last change Kueue has not observed.
func (o *Observed) unseen() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(o.Queues)), func(name string) bool { return seen(o.Queues[name]) })
}

// inUse lists the queues in which jobs hold quota, with the number of workloads.
func (o *Observed) inUse() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(o.Queues)) {
		if n := o.Queues[name].Status.ReservingWorkloads; n > 0 {
			out = append(out, fmt.Sprintf("%s (%d)", name, n))
		}
	}
	return out
}

// reserveAdvice returns the condition that is true while the reserve is not 10 to 20 % of the total,
// which leave room for failures and for jobs to grow.
func reserveAdvice(c *Capacity) metav1.Condition {
	message := fmt.Sprintf("spec.capacity.reserved is %d of %d; 10 to 20 %% is usual", c.reserved, c.total)
	switch {
	case c.reserved*10 < c.total:
		return condition(v1alpha1.ConditionReserveAdvice, true, reasonReserveTooSmall, message)
	case c.reserved*5 > c.total:
		return condition(v1alpha1.ConditionReserveAdvice, true, reasonReserveTooLarge, message)
	default:
		return condition(v1alpha1.ConditionReserveAdvice, false, "", "")
	}
}

// condition returns a condition that has its reason and message only while it is true.
func condition(kind string, holds bool, reason, message string) metav1.Condition {
	if !holds {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reasonAsExpected}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: limited(message)}
}

func nodesTaken(taken map[string]string) []string {
	out := make([]string, 0, len(taken))
	for _, n := range slices.Sorted(maps.Keys(taken)) {
		out = append(out, fmt.Sprintf("node %s (pool %s)", n, taken[n]))
	}
	return out
}

// some joins the first maxNamed names, and counts the rest.
func some(all []string) string {
	if len(all) <= maxNamed {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], ", "), len(all)-maxNamed)
}

// limited cuts a message to the length that the API admits.
func limited(message string) string {
	const most = 2000
	return message[:min(len(message), most)]
}
