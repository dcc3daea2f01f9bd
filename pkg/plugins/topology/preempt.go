// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/eviction"
	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

const (
	// minCandidates is how many nodes with victims are compared at least, and
	// candidatesPercentage how many of a large cluster's: ten times as many as the default
	// preemption compares, since what a pod with GPUs loses is worth a longer look.
	minCandidates        = 1000
	candidatesPercentage = 10
	// overdue is how long after the end of its grace period a pod may still be going.
	// One that is there for longer has a finalizer or a dead kubelet: to wait for it
	// may be to wait for ever.
	overdue = 30 * time.Second
	// holdFor is how long a nominated pod's set is kept for it after its victims' grace
	// periods. It is normally taken within a second of their end.
	holdFor = 2 * time.Minute
)

// preemptor is Kubernetes' preemption with another choice of victims: it nominates,
// lists disruption budgets, asks extenders, evicts, clears nominations and reports as
// the default one does.
type preemptor struct {
	*defaultpreemption.DefaultPreemption
	handle    fwk.Handle
	state     *nodestate.State
	clock     clock.PassiveClock
	evaluator *preemption.Evaluator
}

var _ preemption.Interface = &preemptor{}

func newPreemptor(ctx context.Context, h fwk.Handle, state *nodestate.State, clk clock.PassiveClock) (*preemptor, error) {
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	args := &schedconfig.DefaultPreemptionArgs{MinCandidateNodesPercentage: candidatesPercentage, MinCandidateNodesAbsolute: minCandidates}
	base, err := defaultpreemption.New(ctx, args, h, features)
	if err != nil {
		return nil, fmt.Errorf("setting up preemption: %w", err)
	}
	p := &preemptor{DefaultPreemption: base, handle: h, state: state, clock: clk}
	p.evaluator = preemption.NewEvaluator(Name, h, p, features.EnableAsyncPreemption)
	return p, nil
}

// attempt is what one preemption finds out on the way.
type attempt struct {
	steps   atomic.Int64 // questions that searches may still ask
	mu      sync.Mutex
	plans   map[string]plan // node -> what the pod would get there
	once    sync.Once
	budgets *eviction.Budgets
}

// plan is what a pod would get on a node once its victims are gone.
type plan struct {
	alloc   *nodestate.Allocation
	quality eviction.Quality
	victims []*v1.Pod
	leaving map[types.UID]bool // of victims, those that go for somebody else
}

type attemptKey struct{}

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

// budgetsOf reads the budgets once, whichever node comes first.
func (a *attempt) budgetsOf(pdbs []*policyv1.PodDisruptionBudget) *eviction.Budgets {
	a.once.Do(func() { a.budgets = eviction.NewBudgets(pdbs) })
	return a.budgets
}

// preempt evicts the cheapest set of victims there is and keeps what they free for
// the pod.
func (p *preemptor) preempt(ctx context.Context, state fwk.CycleState, pod *v1.Pod, m fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	a := &attempt{plans: map[string]plan{}}
	a.steps.Store(maxSteps)
	result, status := p.evaluator.Preempt(context.WithValue(ctx, attemptKey{}, a), state, pod, m)
	if result == nil || result.Mode() != fwk.ModeOverride {
		return result, status
	}
	node := result.NominatedNodeName
	if plan := a.plan(node); status.IsSuccess() && plan.alloc != nil {
		p.hold(pod, plan)
	} else {
		p.state.EndHold(pod.UID)
	}
	return result, status
}

// hold keeps the planned set until the victims are gone and the pod has had its turn.
func (p *preemptor) hold(pod *v1.Pod, plan plan) {
	var longest int64
	uids := make([]types.UID, len(plan.victims))
	for i, v := range plan.victims {
		uids[i] = v.UID
		if v.Spec.TerminationGracePeriodSeconds != nil {
			longest = max(longest, *v.Spec.TerminationGracePeriodSeconds)
		}
	}
	p.state.Hold(pod.UID, plan.alloc, uids, p.clock.Now().Add(time.Duration(longest)*time.Second+holdFor))
}

// PodEligibleToPreemptOthers refuses a pod that may not preempt, and one whose victims
// are still on their way: they have not ended, or kubelet has not given back what they
// had.
func (p *preemptor) PodEligibleToPreemptOthers(ctx context.Context, pod *v1.Pod, status *fwk.Status) (bool, string) {
	if ok, why := p.DefaultPreemption.PodEligibleToPreemptOthers(ctx, pod, status); !ok && !p.waitsInVain(pod) {
		return false, why
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(pod.Status.NominatedNodeName)
	if err == nil && p.state.Releasing(pod.UID, info) {
		return false, "not eligible while kubelet has not released the devices of its victims"
	}
	return true, ""
}

// waitsInVain reports whether the pod may preempt, and the victims it waits for should
// be gone by now: somebody else has to go.
func (p *preemptor) waitsInVain(pod *v1.Pod) bool {
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever {
		return false
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(pod.Status.NominatedNodeName)
	if err != nil {
		return false
	}
	for _, pi := range info.GetPods() {
		if v := pi.GetPod(); preempted(v) && corev1.PodPriority(v) < corev1.PodPriority(pod) && p.leaves(v) {
			return false
		}
	}
	return true
}

// preempted reports whether a scheduler evicted a pod for another one.
func preempted(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
	})
}

// leaves reports whether a pod ends by itself, soon.
func (p *preemptor) leaves(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && p.clock.Now().Before(pod.DeletionTimestamp.Add(overdue))
}

// stuck reports whether a pod should have ended by now. Nothing can be done about it.
func (p *preemptor) stuck(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil && !p.leaves(pod) }

// OrderedScoreFuncs compares nodes by what SelectVictimsOnNode compares sets by.
func (p *preemptor) OrderedScoreFuncs(ctx context.Context, nodes map[string]*extenderv1.Victims) []func(string) int64 {
	a := attemptOf(ctx)
	if a == nil {
		return nil
	}
	costs := make(map[string]eviction.Cost, len(nodes))
	for name, victims := range nodes {
		plan := a.plan(name)
		// Who goes for somebody else costs nothing, whether it has heard of that or not.
		more := slices.DeleteFunc(slices.Clone(victims.Pods), func(pod *v1.Pod) bool { return plan.leaving[pod.UID] })
		c := eviction.CostOf(p.podsOf(more, nil), nil, plan.quality)
		c.Violations = int(victims.NumPDBViolations)
		costs[name] = c
	}
	return []func(string) int64{
		func(n string) int64 { return -int64(costs[n].Violations) },
		func(n string) int64 { return -costs[n].Priority },
		func(n string) int64 { return -int64(costs[n].Pods) },
		func(n string) int64 { return -int64(costs[n].Quality.Band) },
		func(n string) int64 { return costs[n].Quality.Ring },
		func(n string) int64 { return -int64(costs[n].Quality.NUMANodes) },
		func(n string) int64 { return costs[n].Started },
	}
}

// podsOf describes pods to a search. One that is leaving costs nothing.
func (p *preemptor) podsOf(pods []*v1.Pod, b *eviction.Budgets) []eviction.Pod {
	out := make([]eviction.Pod, 0, len(pods))
	for _, pod := range pods {
		if p.leaves(pod) {
			continue
		}
		out = append(out, describe(pod, b))
	}
	return out
}
