// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-helpers/scheduling/corev1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

const (
	// minCandidates is the least number of nodes with victims that are compared; candidatesPercentage is
	// their share in a large cluster. Both are ten times those of the default preemption, because a better
	// set is worth more for pods with GPUs.
	minCandidates        = 1000
	candidatesPercentage = 10
)

// preemptor is Kubernetes' preemption with another choice of victims. Like the default one it nominates,
// lists disruption budgets, calls extenders, evicts, clears nominations and reports.
type preemptor struct {
	*defaultpreemption.DefaultPreemption
	handle    fwk.Handle
	nodes     *nodestate.NodeCache
	nominator *nodestate.Nominator
	waiting   *nodestate.WaitingPods
	clock     clock.PassiveClock
	patience  time.Duration // for pods that are being deleted: the argument terminationWait
	evaluator *preemption.Evaluator
	evictOne  func(ctx context.Context, c preemption.Candidate, preemptor, victim *v1.Pod, plugin string) error // the evaluator's own
	profile   *lifecycle.Profile
	tolerance float64 // the argument timeTolerance
}

var _ preemption.Interface = &preemptor{}

func newPreemptor(ctx context.Context, h fwk.Handle, state *nodestate.State, clk clock.PassiveClock, profile *lifecycle.Profile) (*preemptor, error) {
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	args := &schedconfig.DefaultPreemptionArgs{MinCandidateNodesPercentage: candidatesPercentage, MinCandidateNodesAbsolute: minCandidates}
	base, err := defaultpreemption.New(ctx, args, h, features)
	if err != nil {
		return nil, fmt.Errorf("setting up preemption: %w", err)
	}
	p := &preemptor{
		DefaultPreemption: base, handle: h, nodes: state.Nodes, nominator: state.Nominator, waiting: state.Waiting,
		clock: clk, patience: profile.TerminationWait, profile: profile,
	}
	p.evaluator = preemption.NewEvaluator(Name, discreet{h}, p, features.EnableAsyncPreemption)
	p.evictOne, p.evaluator.PreemptPod = p.evaluator.PreemptPod, p.evictPod
	return p, nil
}

// attempt is the state of one preemption.
type attempt struct {
	before  time.Duration // victims must end in less than this; 0: no limit
	begun   string        // the node whose pods were evicted for this pod a moment ago, if any
	evicted []types.UID   // those pods
	steps   atomic.Int64  // steps that searches may still use
	plain   bool          // the pod requests no GPUs
	spared  atomic.Bool   // members of gangs were no candidates, as a pod of the preemptor's priority or above would be evicted with them
	mu      sync.Mutex
	plans   map[string]plan // node -> the pod's placement on it
	gangs   map[gangrequest.Key]*eviction.Gang
	once    sync.Once
	budgets *eviction.Budgets
}

// plan is a pod's placement on a node after other pods are gone.
type plan struct {
	alloc   *allocation.Allocation
	quality eviction.Quality
	victims []*v1.Pod     // evicted for the pod
	others  []*v1.Pod     // of victims' gangs, on other nodes: they are evicted, too
	cost    eviction.Cost // of victims and others, without the quality
	awaited []*v1.Pod     // pods that leave without an eviction
	within  time.Duration // time within which all of them should have ended
}

type attemptKey struct{}

func newAttempt() *attempt {
	a := &attempt{plans: map[string]plan{}, gangs: map[gangrequest.Key]*eviction.Gang{}}
	a.steps.Store(maxSteps)
	return a
}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

func (a *attempt) keep(node string, p plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.plans[node] = p
}

func (a *attempt) plan(node string) plan {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.plans[node]
}

// takesOthers reports whether on some node the victims' gangs are evicted, too.
func (a *attempt) takesOthers() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.plans {
		if len(p.others) > 0 {
			return true
		}
	}
	return false
}

// budgetsOf reads the budgets once, for the first node that needs them.
func (a *attempt) budgetsOf(pdbs []*policyv1.PodDisruptionBudget) *eviction.Budgets {
	a.once.Do(func() { a.budgets = eviction.NewBudgets(pdbs) })
	return a.budgets
}

// preempt finds a node for the pod to wait for. This is a node where its victims are ending, or else one
// where enough becomes free without an eviction, or else one where it evicts the cheapest set of victims.
// The freed devices are kept for the pod. comes: it found no such node, but pods that are ending will make
// room for the pod, later than it may wait for them.
func (p *preemptor) preempt(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, m fwk.NodeToStatusReader,
) (result *fwk.PostFilterResult, comes bool, status *fwk.Status) {
	pod, err := p.evaluator.PodLister.Pods(pod.Namespace).Get(pod.Name) // its nomination may be newer there
	if err != nil {
		return nil, false, fwk.AsStatus(err)
	}
	if why := p.underWay(pod, m.Get(pod.Status.NominatedNodeName)); why != "" {
		return nil, false, fwk.NewStatus(fwk.Unschedulable, why)
	}
	soonest, late := p.waits(ctx, state, pod, m)
	if soonest != nil {
		result, status = p.await(pod, soonest)
		return result, false, status
	}
	if never(pod) {
		p.nominator.EndNominated(pod.UID)
		result, status = framework.NewPostFilterResultWithNominatedNode(""), fwk.NewStatus(fwk.Unschedulable, neverPreempts)
	} else if result, status = p.evict(ctx, state, pod, m, late); status.IsSuccess() {
		return result, false, status
	}
	if late == nil {
		return result, false, status
	}
	p.waiting.TryAgainBy(p.clock.Now().Add(late.within - p.patience))
	return result, true, fwk.NewStatus(status.Code(), status.Message()+"; "+late.tooLate(pod.Namespace))
}

// evict makes the evaluator evict the cheapest set of victims. late, if not nil, is the node where the pod
// would fit without an eviction, but too late: victims must end sooner.
func (p *preemptor) evict(ctx context.Context, state fwk.CycleState, pod *v1.Pod, m fwk.NodeToStatusReader, late *wait) (*fwk.PostFilterResult, *fwk.Status) {
	a := newAttempt()
	a.begun, a.evicted = p.nominator.Evicting(pod.UID), p.nominator.EvictedFor(pod.UID)
	if late != nil {
		a.before = late.within
	}
	result, status := p.evaluator.Preempt(context.WithValue(ctx, attemptKey{}, a), state, pod, m)
	if result == nil || result.Mode() != fwk.ModeOverride {
		return result, status
	}
	if status.IsSuccess() {
		node := result.NominatedNodeName
		plan := a.plan(node)
		p.hold(pod, &plan, eviction.HoldFor)
		p.evictOthers(pod, plan.others)
		return result, fwk.NewStatus(fwk.Success, plan.text(pod.Namespace, node))
	}
	p.nominator.EndNominated(pod.UID)
	return result, a.final(status)
}

// text returns the status of a waiting pod with the victims' names that its namespace may see.
func (p *plan) text(namespace, node string) string {
	text := fmt.Sprintf("waiting on node %s for %s to end, evicted for this pod", node, eviction.NamesFor(namespace, p.victims))
	if len(p.others) > 0 {
		text += fmt.Sprintf("; with them go %d pods of their gangs", len(p.others))
	}
	return text
}

// final keeps the default preemption from evicting members of gangs that this one spared.
func (a *attempt) final(status *fwk.Status) *fwk.Status {
	if a.spared.Load() && status.Code() == fwk.Unschedulable {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, status.Reasons()...)
	}
	return status
}

// evictPlain evicts for a pod without GPUs as the default preemption does, but never breaks a gang.
func (p *preemptor) evictPlain(ctx context.Context, state fwk.CycleState, pod *v1.Pod, m fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	a := newAttempt()
	a.plain = true
	result, status := p.evaluator.Preempt(context.WithValue(ctx, attemptKey{}, a), state, pod, m)
	if status.IsSuccess() && result != nil && result.NominatingInfo != nil {
		p.evictOthers(pod, a.plan(result.NominatedNodeName).others)
	}
	return result, a.final(status)
}

// hold keeps the planned set until the other pods are gone, or should be, and the pod has been tried.
func (p *preemptor) hold(pod *v1.Pod, plan *plan, slack time.Duration) {
	if plan.alloc == nil {
		p.nominator.EndNominated(pod.UID)
		return
	}
	p.nominator.ReserveNominated(pod.UID, plan.alloc, reservations.WaitsFor{
		Victims: uidsIn(plan.victims), Awaited: uidsIn(plan.awaited), Until: p.clock.Now().Add(min(plan.within, p.patience) + slack),
	})
}

// neverPreempts is the status of a pod that may only wait.
const neverPreempts = "not eligible due to preemptionPolicy=Never."

func never(pod *v1.Pod) bool {
	return pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
}

// PodEligibleToPreemptOthers refuses a pod that may not preempt, and one whose victims
// are still ending.
func (p *preemptor) PodEligibleToPreemptOthers(_ context.Context, pod *v1.Pod, status *fwk.Status) (bool, string) {
	if never(pod) {
		return false, neverPreempts
	}
	why := p.underWay(pod, status)
	return why == "", why
}

// underWay returns the reason for which a pod waits on its nominated node: victims that have not ended and
// still have time to, or kubelet, which has not released their devices. status is the node's; if the pod
// can never run on it, it does not wait.
func (p *preemptor) underWay(pod *v1.Pod, status *fwk.Status) string {
	node := pod.Status.NominatedNodeName
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return ""
	}
	var victims []*v1.Pod
	for _, pi := range info.GetPods() {
		if v := pi.GetPod(); eviction.Preempted(v) && corev1.PodPriority(v) < corev1.PodPriority(pod) && p.deserves(v) {
			victims = append(victims, v)
		}
	}
	switch {
	case len(victims) > 0 && status.Code() != fwk.UnschedulableAndUnresolvable:
		return fmt.Sprintf("waiting on node %s for %s to end, evicted by a scheduler", node, eviction.NamesFor(pod.Namespace, victims))
	case p.nominator.Releasing(pod.UID, info):
		return fmt.Sprintf("waiting on node %s for kubelet to release the devices of pods that this one waited for", node)
	}
	return ""
}

// OrderedScoreFuncs compares nodes as SelectVictimsOnNode compares sets. If all is equal except the starts
// of the victims, it prefers the node that is free sooner. Before all else it keeps the node where
// evictions have begun: snapshot and informer may not have those or the nomination yet, and the first
// victims would have been evicted for nothing.
func (p *preemptor) OrderedScoreFuncs(ctx context.Context, nodes map[string]*extenderv1.Victims) []func(string) int64 {
	a := attemptOf(ctx)
	if a == nil || a.plain && !a.takesOthers() {
		return nil
	}
	costs := make(map[string]eviction.Cost, len(nodes))
	for name, victims := range nodes {
		plan := a.plan(name)
		c := eviction.CostOf(p.podsOf(victims.Pods, nil), nil, plan.quality)
		if len(plan.others) > 0 && len(victims.Pods) == len(plan.victims) { // no extender left one out
			c = plan.cost
			c.Quality = plan.quality
		}
		c.Violations = int(victims.NumPDBViolations)
		costs[name] = c
	}
	begun, slower := map[string]int64{a.begun: 1}, shortfalls(costs, p.tolerance)
	return []func(string) int64{
		func(n string) int64 { return begun[n] },
		func(n string) int64 { return -int64(costs[n].Violations) },
		func(n string) int64 { return -costs[n].Priority },
		func(n string) int64 { return -int64(costs[n].Pods) },
		func(n string) int64 { return -int64(costs[n].Late) },
		func(n string) int64 { return -slower[n] },
		func(n string) int64 { return -int64(costs[n].Quality.NUMANodes) },
		func(n string) int64 { return -int64(a.plan(n).within) },
		func(n string) int64 { return costs[n].Started },
	}
}

// shortfalls returns by how much the ring of each node is slower than the best, in kB/s. A ring whose time
// is longer by no more than the tolerance is not slower, as in scoring.
func shortfalls(costs map[string]eviction.Cost, tolerance float64) map[string]int64 {
	var best int64
	for _, c := range costs {
		best = max(best, c.Quality.Ring)
	}
	out := make(map[string]int64, len(costs))
	for n, c := range costs {
		if float64(c.Quality.Ring)*(1+tolerance) < float64(best) {
			out[n] = best - c.Quality.Ring
		}
	}
	return out
}

// podsOf describes pods for a search.
func (p *preemptor) podsOf(pods []*v1.Pod, b *eviction.Budgets) []eviction.Pod {
	out := make([]eviction.Pod, len(pods))
	for i, pod := range pods {
		out[i] = p.describe(pod, b)
	}
	return out
}

// describe describes one pod for a search.
func (p *preemptor) describe(pod *v1.Pod, b *eviction.Budgets) eviction.Pod {
	out := eviction.Pod{Priority: corev1.PodPriority(pod), Late: p.late(pod), Started: eviction.NotStarted}
	if t := pod.Status.StartTime; t != nil {
		out.Started = t.UnixNano()
	}
	if b != nil {
		out.Budgets = b.Of(pod)
	}
	return out
}
