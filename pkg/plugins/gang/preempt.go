// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// failedKey is the key under which PreFilter keeps a question without a plan, for PostFilter.
const failedKey fwk.StateKey = "nvtopo.dev/gang-failed"

// failed is a gang without room.
type failed struct {
	question  *gangstate.Question
	mixedFits bool // there is room on GPUs of several models
}

// Clone returns the same.
func (f *failed) Clone() fwk.StateData { return f }

func readFailed(state fwk.CycleState) *failed {
	d, err := state.Read(failedKey)
	if err != nil {
		return nil
	}
	f, _ := d.(*failed)
	return f
}

// ownClaim returns the places of a gang's own claim by node, so that they are treated as free for it.
func ownClaim(claim *gangstate.Claim, snapshot fwk.NodeInfoLister) func(node string) *gangstate.Cleared {
	if claim == nil {
		return nil
	}
	uids, on := sets.New[types.UID](), map[string]*gangstate.Cleared{}
	for _, l := range claim.Places {
		uids.Insert(l.Pod.UID)
	}
	for _, l := range claim.Places {
		if info, err := snapshot.Get(l.Node); err == nil && on[l.Node] == nil {
			on[l.Node] = &gangstate.Cleared{Info: info, Gone: uids}
		}
	}
	return func(node string) *gangstate.Cleared { return on[node] }
}

// preempt looks for victims for a gang without room, and evicts them. The freed places are held for all
// members until the victims are gone. No pod is evicted while others are still terminating for the gang,
// and none unless the whole gang then has room.
func (p *Plugin) preempt(ctx context.Context, f *failed, pod *v1.Pod) *fwk.Status {
	q := f.question
	began := p.shared.Clock().Now()
	defer func() { p.gangs.PlanTook(p.shared.Clock().Since(began)) }()
	key := q.Turn.Gang.Key
	if claim := q.Turn.Claim; claim != nil {
		if began.Before(claim.Until) && slices.ContainsFunc(claim.Waits, p.there) {
			p.gangs.Wait(key, &gangstate.Wait{Why: claim.Because, Until: claim.Until, ForChange: true})
			return refused("preemption: " + claim.Because)
		}
		// They are gone, or will not end, and there is no room all the same.
		p.gangs.EndClaim(key, "")
		q.Turn.Claim, q.Cleared = nil, nil
	}
	switch {
	case !p.preempts():
		return refused("")
	case f.mixedFits:
		return refused("preemption: nobody goes for a gang that allow-mixed-models would fit")
	}
	field, err := p.field(q)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if p.nothingGoes(q, field) {
		return nobodyGoes(field, nil)
	}
	if !field.Never {
		metrics.PreemptionAttempts.Inc()
	}
	e, why, err := p.victims(ctx, q, field)
	switch {
	case why != "":
		return refused("preemption: in vain, other plugins refuse " + why)
	case e == nil:
		return nobodyGoes(field, err)
	case len(e.Victims)+len(e.Ends) == 0 && !slices.ContainsFunc(e.Awaited, eviction.Preempted):
		why := key.String() + ": waits for a kubelet to release devices"
		if len(e.Awaited) > 0 {
			why = fmt.Sprintf("%s: waits for %s to end", key, eviction.NamesFor(key.Namespace, e.Awaited))
		}
		p.gangs.Wait(key, &gangstate.Wait{Why: why, ForChange: true})
		return refused("preemption: " + why)
	}
	return p.carryOut(ctx, q, e, pod)
}

// nothingGoes reports whether no pod leaves a node and none could be evicted for a gang: the same plan
// would fail again. This holds for most of the waiting gangs, and a plan takes many times longer.
func (p *Plugin) nothingGoes(q *gangstate.Question, field *gangstate.Field) bool {
	g := q.Turn.Gang
	if len(field.Others) > 0 || p.gangs.Expected().Len() > 0 {
		return false
	}
	demand, err := p.demand(q.Turn.Pods[0])
	if err != nil {
		return false
	}
	for _, info := range q.Nodes {
		if info.Node() == nil {
			continue
		}
		goes := func(pi fwk.PodInfo) bool {
			pod := pi.GetPod()
			return pod.DeletionTimestamp != nil || !field.Never && corev1.PodPriority(pod) < g.Priority
		}
		if slices.ContainsFunc(info.GetPods(), goes) || len(p.nominator.Leaving(info.Node().Name, "", g.Priority)) > 0 || p.nodes.KubeletBehind(demand, info, q.Snapshot) {
			return false
		}
	}
	return true
}

// nobodyGoes returns the status of a gang for which no pod is evicted. err is why there is no plan with
// all possible victims evicted.
func nobodyGoes(field *gangstate.Field, err error) *fwk.Status {
	switch {
	case field.Never:
		return refused("preemption: not eligible due to preemptionPolicy=Never.")
	case err != nil:
		return refused("preemption: not even with all pods of a lower priority gone: " + err.Error())
	}
	return refused("preemption: no pod of a lower priority can go")
}

// preempts reports whether the profile has preemption at all: taking DefaultPreemption out of it disables
// evictions.
func (p *Plugin) preempts() bool {
	f, ok := p.handle.(interface{ ListPlugins() *schedconfig.Plugins })
	return !ok || slices.ContainsFunc(f.ListPlugins().PostFilter.Enabled, func(e schedconfig.Plugin) bool { return e.Name == names.DefaultPreemption })
}

// maxTrials is the number of plans that other plugins may refuse.
const maxTrials = 8

// victims finds the pods to evict so that the members fit according to all plugins. why is another
// plugin's objection to the last plan.
func (p *Plugin) victims(ctx context.Context, q *gangstate.Question, field *gangstate.Field) (e *gangstate.Eviction, why string, err error) {
	for range maxTrials {
		var refusal gangstate.Refusal
		if e, err = p.planner.Preempt(q, field); e == nil {
			return nil, why, err
		}
		if refusal, why = p.objection(ctx, e); why == "" {
			return e, "", nil
		}
		info, err := q.Snapshot.Get(refusal.Node)
		if err != nil {
			return nil, why, nil //nolint:nilerr // why says it
		}
		q.Turn.Refused[refusal] = info.GetGeneration()
	}
	return nil, why, nil
}

// field returns the pods and places that a gang may take.
func (p *Plugin) field(q *gangstate.Question) (*gangstate.Field, error) {
	pdbs, err := p.budgets.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	g, now := q.Turn.Gang, p.shared.Clock().Now()
	expected, patience := p.gangs.Expected(), p.patience(q.Turn.Pods[0])
	f := &gangstate.Field{Others: p.gangs.Others(g.Priority), Budgets: eviction.NewBudgets(pdbs)}
	f.Goes = func(pod *v1.Pod) bool {
		if t := pod.DeletionTimestamp; t != nil {
			return !eviction.Stuck(pod, now) && t.Sub(now) <= patience
		}
		return expected.Has(pod.UID) || slices.Contains(p.nominator.Leaving(pod.Spec.NodeName, "", g.Priority), pod.UID)
	}
	for _, pod := range q.Turn.Pods {
		f.Never = f.Never || pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
	}
	return f, nil
}

// patience is how long to wait for pods that are being deleted.
func (p *Process) patience(pod *v1.Pod) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if profile := p.profiles[pod.Spec.SchedulerName]; profile != nil {
		return profile.TerminationWait
	}
	return 0
}

// there reports whether a victim still has resources on its node.
func (p *Plugin) there(l gangstate.Located) bool {
	if p.nodes.Has(l.Node, l.Pod.UID) {
		return true
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(l.Node)
	return err == nil && slices.ContainsFunc(info.GetPods(), func(pi fwk.PodInfo) bool { return pi.GetPod().UID == l.Pod.UID })
}

// carryOut reserves the places of all members, and has the victims evicted.
func (p *Plugin) carryOut(ctx context.Context, q *gangstate.Question, e *gangstate.Eviction, pod *v1.Pod) *fwk.Status {
	key, members := q.Turn.Gang.Key, e.Answer.Members
	if failed, reason := p.gangReserver.ReserveGang(members, q.Snapshot, e.Infos, e.Gone); reason != placement.Fits {
		m := &members[max(0, failed)]
		return refused(fmt.Sprintf("preemption: what would be freed cannot be held: %s on %s: %s", m.Pod.Name, m.Node, reason.Text(m.Demand.Request)))
	}
	claim := p.claim(q, e)
	p.nominate(ctx, members, pod) // before Claim: the end of the claim removes nominations
	if !p.gangs.Claim(q.Turn, claim) {
		p.unclaimed(members)
		return refused("the gang changed while victims were looked for")
	}
	for _, other := range e.Ends {
		p.gangs.Yield(other, fmt.Sprintf("%s: its places are taken by %s, which has a higher priority", other, key.NameIn(other.Namespace)))
	}
	if len(e.Victims) > 0 {
		metrics.PreemptionVictims.Observe(float64(len(e.Victims)))
		p.doer.preempt(key, pod, e.Victims) //nolint:contextcheck // it outlives the cycle
	}
	return refused("preemption: " + claim.Because)
}

// claim returns the claim on the members' places until all victims are gone.
func (p *Plugin) claim(q *gangstate.Question, e *gangstate.Eviction) *gangstate.Claim {
	c, now := &gangstate.Claim{}, p.shared.Clock().Now()
	for i := range e.Answer.Members {
		m := &e.Answer.Members[i]
		c.Places = append(c.Places, gangstate.Located{Pod: m.Pod, Node: m.Node})
	}
	c.Waits = e.Leaves
	within := time.Duration(0)
	for _, v := range e.Victims {
		within = max(within, eviction.GraceOf(v))
	}
	for _, a := range e.Awaited {
		if t := a.DeletionTimestamp; t != nil {
			within = max(within, t.Sub(now))
		}
	}
	c.Until = now.Add(min(within, p.patience(q.Turn.Pods[0])) + eviction.HoldFor)
	c.Because = because(q, e)
	return c
}

// holdOn keeps the places of a plan that another plugin refused, if pods were evicted for the gang: others
// must not get the freed devices before the gang has another plan. It ends when the claim would have.
func (p *Plugin) holdOn(ctx context.Context, c *cycle, pod *v1.Pod) {
	if c.turn == nil || c.turn.Claim == nil {
		return
	}
	members := c.answer.Members
	if _, reason := p.gangReserver.ReserveGang(members, p.handle.SnapshotSharedLister().NodeInfos(), nil, sets.New[types.UID]()); reason != placement.Fits {
		return
	}
	claim := &gangstate.Claim{Until: c.turn.Claim.Until, Because: c.turn.Gang.Key.String() + ": another plugin refused its plan; its places are held until it has another one"}
	for i := range members {
		claim.Places = append(claim.Places, gangstate.Located{Pod: members[i].Pod, Node: members[i].Node})
	}
	p.nominate(ctx, members, pod)
	if !p.gangs.Claim(c.turn, claim) {
		p.unclaimed(members)
	}
}

// unclaimed releases the members' reserved places, and their nominations.
func (p *Plugin) unclaimed(members []nodestate.GangMember) {
	p.gangReserver.EndPlanned(uidsOf(members)...)
	for i := range members {
		p.handle.DeleteNominatedPodIfExists(members[i].Pod)
	}
}

// because returns the text about the pods for which the members wait.
func because(q *gangstate.Question, e *gangstate.Eviction) string {
	var parts []string
	key := q.Turn.Gang.Key
	if len(e.Victims) > 0 {
		parts = append(parts, fmt.Sprintf("waits for %s to end, evicted for this gang", eviction.NamesFor(key.Namespace, e.Victims)))
	}
	if len(e.Ends) > 0 {
		names := make([]string, len(e.Ends))
		for i := range e.Ends {
			names[i] = e.Ends[i].NameIn(key.Namespace)
		}
		parts = append(parts, "takes the places that were held for "+eviction.Shortened(names))
	}
	if len(e.Awaited) > 0 {
		parts = append(parts, fmt.Sprintf("waits for %s to end", eviction.NamesFor(key.Namespace, e.Awaited)))
	}
	return key.String() + ": " + strings.Join(parts, "; ")
}
