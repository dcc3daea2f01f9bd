// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

const (
	// maxSteps bounds the search steps of one preemption on all nodes together, and nodeSteps those on one
	// node. A step for which the node's usage has to be computed is charged as exactSteps.
	maxSteps   = 1 << 21
	nodeSteps  = 1 << 16
	exactSteps = 32
	// maxTrials is the number of sets on one node for which the other plugins are run.
	maxTrials = 64
)

// noVictims is the status of a node where all pods are at least as important.
const noVictims = "No preemption victims found for incoming pod"

// site is one node during a dry run: a copy from which pods are removed and to which they are added again.
type site struct {
	p      *preemptor
	ctx    context.Context // a site lives for one call
	state  fwk.CycleState
	pod    *v1.Pod
	info   fwk.NodeInfo
	logger klog.Logger

	budgets *eviction.Budgets
	could   []fwk.PodInfo // pods that may be evicted, the more important ones first
	leaving []leaving     // pods that leave without an eviction, removed for good
	// begun are pods that were evicted for this one a moment ago and do not show it yet; they are among
	// leaving.
	begun   []fwk.PodInfo
	holders []fwk.PodInfo // the part of could that has devices of the requested kinds
	others  []fwk.PodInfo // the rest of could, except pods that are evicted with a holder
	// parties are the parties of the members among could that their gangs need; nil if there are none.
	parties map[types.UID]*party
	trials  int
	err     error
}

// SelectVictimsOnNode finds the pods whose eviction makes room on a node at the least cost. First it
// searches among the holders of devices, and looks at devices only. The result is right if the other
// plugins agree while all other pods stay. Otherwise something other than devices is short, and three ways
// are compared: more holders, other pods, and the default preemption's choice.
func (p *preemptor) SelectVictimsOnNode(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo, pdbs []*policyv1.PodDisruptionBudget,
) ([]*v1.Pod, int, *fwk.Status) {
	a := attemptOf(ctx)
	c := lifecycle.ReadCycle(state)
	if a == nil || c == nil && !a.plain || a.plain && !p.hasMember(pod, info) {
		return p.DefaultPreemption.SelectVictimsOnNode(ctx, state, pod, info, pdbs)
	}
	s := &site{p: p, ctx: ctx, state: state, pod: pod, info: info, logger: klog.FromContext(ctx), budgets: a.budgetsOf(pdbs)}
	if !s.sort(a) {
		return nil, 0, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, noVictims)
	}
	victims, status := s.chooseBesides(a, c)
	if s.err != nil {
		return nil, 0, fwk.AsStatus(s.err)
	}
	if !status.IsSuccess() {
		return nil, 0, status
	}
	if len(victims) == 0 {
		// The node has just become free without an eviction.
		return nil, 0, fwk.NewStatus(fwk.Unschedulable, noVictims)
	}
	plan := s.planOf(c, victims)
	plan.cost, plan.others = s.cost(victims), append(s.othersOf(victims), s.coming(victims)...)
	a.keep(info.Node().Name, plan)
	return podsIn(victims), plan.cost.Violations, nil
}

// planOf returns the pod's placement on the node as it is now; without devices if it requests none.
func (s *site) planOf(c *lifecycle.Cycle, victims []fwk.PodInfo) plan {
	if c == nil {
		return plan{victims: podsIn(victims)}
	}
	return s.plan(&c.Demand, victims)
}

// plan returns the pod's placement on the node as it is now.
func (s *site) plan(d *placement.Demand, victims []fwk.PodInfo) plan {
	out := plan{victims: podsIn(victims)}
	out.alloc, out.quality = s.p.nodes.Plan(d, s.info, s.p.handle.SnapshotSharedLister().NodeInfos())
	for _, pod := range out.victims {
		out.within = max(out.within, eviction.GraceOf(pod))
	}
	for _, l := range s.leaving {
		out.awaited = append(out.awaited, l.GetPod())
		out.within = max(out.within, l.within)
	}
	return out
}

func podsIn(pis []fwk.PodInfo) []*v1.Pod {
	out := make([]*v1.Pod, len(pis))
	for i, pi := range pis {
		out[i] = pi.GetPod()
	}
	return out
}

func uidsIn(pods []*v1.Pod) []types.UID {
	out := make([]types.UID, len(pods))
	for i, pod := range pods {
		out[i] = pod.UID
	}
	return out
}

func uidsOf(pis []fwk.PodInfo) map[types.UID]bool {
	out := make(map[types.UID]bool, len(pis))
	for _, pi := range pis {
		out[pi.GetPod().UID] = true
	}
	return out
}

// sort divides the pods into those that may be evicted and those that leave without an eviction. If
// a.before is not 0, pods that may be evicted must end before that time. Pods that leave soon are removed.
func (s *site) sort(a *attempt) bool {
	soon, slow := s.p.leavers(s.info, s.pod)
	going := map[types.UID]bool{}
	for _, l := range slices.Concat(soon, slow) {
		going[l.GetPod().UID] = true
	}
	for _, pi := range s.info.GetPods() {
		pod := pi.GetPod()
		switch {
		case going[pod.UID] || pod.DeletionTimestamp != nil: // a deleted pod that is not going should have ended by now
		case slices.Contains(a.evicted, pod.UID) && corev1.PodPriority(pod) < corev1.PodPriority(s.pod):
			s.begun = append(s.begun, pi)
		case a.before > 0 && eviction.GraceOf(pod) >= a.before:
		case corev1.PodPriority(pod) < corev1.PodPriority(s.pod) && s.p.IsEligiblePod(s.info, pi, s.pod) && s.mayGo(a, pod):
			s.could = append(s.could, pi)
		}
	}
	slices.SortStableFunc(s.could, s.p.byImportance)
	s.findParties(a)
	s.leave(soon)
	for _, pi := range s.begun {
		s.leave([]leaving{{pi, eviction.GraceOf(pi.GetPod())}})
	}
	return len(s.could)+len(s.begun) > 0
}

// leave removes for good pods that leave without an eviction.
func (s *site) leave(ls []leaving) {
	for _, l := range ls {
		s.take([]fwk.PodInfo{l.PodInfo})
	}
	s.leaving = append(s.leaving, ls...)
}

// left returns the pods that were removed because they leave without an eviction.
func (s *site) left() map[types.UID]bool {
	out := make(map[types.UID]bool, len(s.leaving))
	for _, l := range s.leaving {
		out[l.GetPod().UID] = true
	}
	return out
}

// byImportance puts the more important pods first.
func (p *preemptor) byImportance(a, b fwk.PodInfo) int {
	switch {
	case p.MoreImportantPod(a.GetPod(), b.GetPod()):
		return -1
	case p.MoreImportantPod(b.GetPod(), a.GetPod()):
		return 1
	}
	return 0
}

// chooseBesides returns the victims, including those whose eviction has begun, which are treated as gone.
// Before all of those evictions are visible, fewer victims are needed than at first, and the cheapest set
// of that size may consist of others: one pod more would be evicted.
func (s *site) chooseBesides(a *attempt, c *lifecycle.Cycle) ([]fwk.PodInfo, *fwk.Status) {
	if len(s.begun) == 0 {
		return s.choose(a, c)
	}
	if s.filter().IsSuccess() {
		return s.begun, nil
	}
	if len(s.could) == 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, noVictims)
	}
	more, status := s.choose(a, c)
	victims := slices.Concat(s.begun, more)
	slices.SortStableFunc(victims, s.p.byImportance)
	return victims, status
}

// choose returns the victims and leaves the node without them.
func (s *site) choose(a *attempt, c *lifecycle.Cycle) ([]fwk.PodInfo, *fwk.Status) {
	if a.plain {
		return s.byReprieve()
	}
	t := s.p.nodes.Victims(&c.Demand, s.info, s.p.handle.SnapshotSharedLister().NodeInfos(), s.could, s.left())
	if t == nil {
		return s.byReprieve()
	}
	s.holders = t.Holders
	holds := uidsOf(s.holders)
	for _, pi := range s.could {
		if pod := pi.GetPod(); !holds[pod.UID] && !s.goesWithHolder(pod, holds) {
			s.others = append(s.others, pi)
		}
	}
	search := s.search(t)
	set, ok := s.run(a, t, search)
	if ok && s.fitsWithout(s.of(set)) {
		return s.goOn(s.of(set)), nil
	}
	if !ok && search.Steps > 0 {
		// The pod does not fit even without all of them; the filters return the reason.
		return s.byReprieve()
	}
	return s.compare(a, t)
}

// search returns a search over the holders.
func (s *site) search(t *nodestate.Victims) *eviction.Search {
	out := &eviction.Search{Judge: t, Allowed: s.budgets.Allowed, Short: t.Short()}
	for i, pi := range t.Holders {
		pod := s.p.describe(pi.GetPod(), s.budgets)
		pod.Devices = t.Devices[i]
		out.Pods = append(out.Pods, pod)
	}
	s.gangsIn(out)
	return out
}

// run searches with the remaining steps of this preemption.
func (s *site) run(a *attempt, t *nodestate.Victims, search *eviction.Search) (eviction.Set, bool) {
	weight := int64(1)
	if t.Exact() {
		weight = exactSteps
	}
	search.Steps = int(min(nodeSteps, a.steps.Load()) / weight)
	before := search.Steps
	set, ok := search.Best()
	a.steps.Add(-weight * int64(before-search.Steps))
	return set, ok
}

// of returns the holders of a set, and the pods of the node that are evicted with them.
func (s *site) of(set eviction.Set) []fwk.PodInfo {
	var out []fwk.PodInfo
	for i := range set.Each() {
		out = append(out, s.holders[i])
	}
	return s.with(out)
}

// besides returns the others that are not evicted with the holders of a set.
func (s *site) besides(set eviction.Set) []fwk.PodInfo {
	if s.parties == nil {
		return s.others
	}
	gone := uidsOf(s.of(set))
	return slices.DeleteFunc(slices.Clone(s.others), func(pi fwk.PodInfo) bool { return gone[pi.GetPod().UID] })
}

// compare tries the ways to make room if not only devices are short, and takes the cheapest.
func (s *site) compare(a *attempt, t *nodestate.Victims) ([]fwk.PodInfo, *fwk.Status) {
	if status := s.probe(s.could); !status.IsSuccess() {
		return nil, status
	}
	var ways [][]fwk.PodInfo
	// More holders; the other pods stay.
	s.trials = maxTrials
	search := s.search(t)
	tried := map[eviction.Set]bool{}
	search.Accept = s.once(tried, func(set eviction.Set) bool { return s.fitsWithout(s.of(set)) })
	if set, ok := s.run(a, t, search); ok {
		ways = append(ways, s.of(set))
	}
	// Holders for the devices, and other pods for the rest.
	s.trials = maxTrials
	search = s.search(t)
	tried = map[eviction.Set]bool{}
	search.Accept = s.once(tried, func(set eviction.Set) bool { return s.fitsWithout(slices.Concat(s.of(set), s.besides(set))) })
	if set, ok := s.run(a, t, search); ok {
		if way, status := s.reprieve(s.of(set), s.besides(set)); status.IsSuccess() {
			ways = append(ways, way)
		}
	}
	if way, status := s.reprieve(nil, s.could); status.IsSuccess() {
		ways = append(ways, way)
	}
	if s.err != nil || len(ways) == 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, noVictims)
	}
	best, least := ways[0], s.cost(ways[0])
	for _, way := range ways[1:] {
		if c := s.cost(way); c.Compare(&least) < 0 {
			best, least = way, c
		}
	}
	return s.goOn(best), nil
}

// once calls ask once for each set, and stops when no trials are left.
func (s *site) once(tried map[eviction.Set]bool, ask func(eviction.Set) bool) func(eviction.Set) bool {
	return func(set eviction.Set) bool {
		if s.trials == 0 || s.err != nil || tried[set] {
			return false
		}
		tried[set] = true
		s.trials--
		return ask(set)
	}
}

// byReprieve chooses as the default preemption does, and leaves the node without the victims.
func (s *site) byReprieve() ([]fwk.PodInfo, *fwk.Status) {
	victims, status := s.reprieve(nil, s.could)
	if !status.IsSuccess() {
		return nil, status
	}
	return s.goOn(victims), nil
}

// reprieve removes pods and adds all of may again that need not be evicted: first those that a disruption
// budget protects, then the more important ones. The node is the same afterwards.
func (s *site) reprieve(must, may []fwk.PodInfo) ([]fwk.PodInfo, *fwk.Status) {
	s.take(must)
	s.take(may)
	defer func() { s.give(must) }()
	if status := s.filter(); !status.IsSuccess() {
		s.give(may)
		return nil, status
	}
	protected, rest := s.byBudget(must, may)
	victims := slices.Concat(s.giveBack(protected), s.giveBack(rest))
	s.give(victims)
	victims = s.with(slices.Concat(must, victims))
	slices.SortStableFunc(victims, s.p.byImportance)
	return victims, nil
}

// giveBack adds as many parts again, in their order, as may stay, and returns the pods of the others. One
// run of the filters is enough for many parts that may all stay.
func (s *site) giveBack(parts [][]fwk.PodInfo) (victims []fwk.PodInfo) {
	if len(parts) == 0 || s.err != nil {
		return nil
	}
	pods := slices.Concat(parts...)
	s.give(pods)
	if s.filter().IsSuccess() {
		return nil
	}
	s.take(pods)
	if len(parts) == 1 {
		return pods
	}
	half := len(parts) / 2
	return slices.Concat(s.giveBack(parts[:half]), s.giveBack(parts[half:]))
}

// byBudget separates the parts whose eviction, after the others', violates a budget.
func (s *site) byBudget(must, may []fwk.PodInfo) (protected, rest [][]fwk.PodInfo) {
	all := s.describeAll(must)
	before := eviction.CostOf(all, s.budgets.Allowed, eviction.Quality{}).Violations
	for _, part := range s.parts(may) {
		all = append(all, s.describeAll(part)...)
		now := eviction.CostOf(all, s.budgets.Allowed, eviction.Quality{}).Violations
		if now > before {
			protected = append(protected, part)
		} else {
			rest = append(rest, part)
		}
		before = now
	}
	return protected, rest
}

// cost is the cost of some victims, without the quality of the freed devices.
func (s *site) cost(victims []fwk.PodInfo) eviction.Cost {
	return eviction.CostOf(s.describeAll(victims), s.budgets.Allowed, eviction.Quality{})
}

// fitsWithout reports whether all plugins' filters accept the node without some pods.
func (s *site) fitsWithout(pods []fwk.PodInfo) bool { return s.probe(pods).IsSuccess() }

func (s *site) probe(pods []fwk.PodInfo) *fwk.Status {
	s.take(pods)
	defer s.give(pods)
	return s.filter()
}

func (s *site) filter() *fwk.Status {
	status := s.p.handle.RunFilterPluginsWithNominatedPods(s.ctx, s.state, s.pod, s.info)
	if status.Code() == fwk.Error && s.err == nil {
		s.err = status.AsError()
	}
	return status
}

// goOn removes the victims for good.
func (s *site) goOn(victims []fwk.PodInfo) []fwk.PodInfo {
	s.take(victims)
	return victims
}

func (s *site) take(pods []fwk.PodInfo) {
	for _, pi := range pods {
		err := s.info.RemovePod(s.logger, pi.GetPod())
		if err == nil {
			err = s.p.handle.RunPreFilterExtensionRemovePod(s.ctx, s.state, s.pod, pi, s.info).AsError()
		}
		if err != nil && s.err == nil {
			s.err = err
		}
	}
}

func (s *site) give(pods []fwk.PodInfo) {
	for _, pi := range pods {
		s.info.AddPodInfo(pi)
		if err := s.p.handle.RunPreFilterExtensionAddPod(s.ctx, s.state, s.pod, pi, s.info).AsError(); err != nil && s.err == nil {
			s.err = err
		}
	}
}
