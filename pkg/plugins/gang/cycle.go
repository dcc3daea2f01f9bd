// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// cycleKey is the key under which PreFilter keeps the data of a member's cycle.
const cycleKey fwk.StateKey = "nvtopo.dev/gang"

// cycle is the task of a member's cycle; immutable after PreFilter.
type cycle struct {
	node   string            // node of the member
	turn   *gangstate.Turn   // nil if the member has its place already
	answer *gangstate.Answer // the plan for all; nil if turn is
	took   time.Duration     // time to plan it
}

// Clone returns the same cycle.
func (c *cycle) Clone() fwk.StateData { return c }

// askedKey marks a cycle that has reached this plugin's PreFilter.
const askedKey fwk.StateKey = "nvtopo.dev/gang-asked"

type asked struct{}

// requestKey is the key under which PreFilter keeps the request of a pod in no gang.
const requestKey fwk.StateKey = "nvtopo.dev/request"

type request struct{ *podrequest.Request }

// Clone returns the same.
func (r *request) Clone() fwk.StateData { return r }

// requestOf returns the request kept by PreFilter; nil if there is none.
func requestOf(state fwk.CycleState) *podrequest.Request {
	d, err := state.Read(requestKey)
	if err != nil {
		return nil
	}
	if r, ok := d.(*request); ok {
		return r.Request
	}
	return nil
}

// Clone returns the same.
func (a asked) Clone() fwk.StateData { return a }

func read(state fwk.CycleState) *cycle {
	d, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	c, _ := d.(*cycle)
	return c
}

// refused is the status of a member that cannot go on. No eviction for it alone would help.
func refused(why string) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
}

// PreEnqueue keeps members out of the queue while their gang cannot be placed. It saves cycles; the
// decision is PreFilter's.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	if why := p.gangs.Gate(pod); why != "" {
		return refused(why)
	}
	return nil
}

// PreFilter returns the node of a member that has its place. For the first member of a gang that has none
// it plans for all members. The plan is still valid in the same cycle's Reserve, because cycles run one
// after the other; until then nothing is reserved.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if inDryRun(state) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	turn, member := p.gangs.Begin(pod)
	if !member {
		if list := p.near(state, pod, nodes); list != nil || p.preSelector.Closed().Any() {
			if d, err := p.demand(pod); err == nil { // else TopologyAware reports the error
				state.Write(requestKey, &request{d.Request})
			}
			return list, nil // Filter checks the capacity that is kept for gangs
		}
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(askedKey, asked{})
	switch {
	case turn.Why != "":
		p.doer.Activate([]*v1.Pod{pod}) // as wait does
		return nil, refused(turn.Why)
	case turn.Held:
		return p.goOn(state, pod)
	case !p.lists.Synced():
		p.wait(pod, turn.Gang.Key, &gangstate.Wait{Why: gangstate.NotSynced, ForChange: true})
		return nil, refused(gangstate.NotSynced)
	}
	began := p.shared.Clock().Now()
	snapshot := p.handle.SnapshotSharedLister().NodeInfos()
	p.allocations.Sweep(snapshot) // TopologyAware's PreFilter does so too late for the plan, and not at all if there is none
	question := gangstate.Question{
		Turn: &turn, View: p.fabric.Current(), Nodes: nodes, Snapshot: snapshot, Demand: p.demand,
		Kept: turn.KeptOut(p.preSelector.Closed()), Volumes: p.volumes.of, Cleared: ownClaim(turn.Claim, snapshot),
	}
	answer, err := p.plan(&question, began)
	observePlan(p.shared.Clock().Since(began), err)
	if err != nil {
		return nil, p.unplaceable(state, pod, &question, err, began)
	}
	if status := p.patient(pod, &question, answer); status != nil {
		p.gangs.PlanTook(p.shared.Clock().Since(began))
		return nil, status
	}
	p.replaceClaim(&turn) // by the places of this plan
	took := p.shared.Clock().Since(began)
	c := &cycle{turn: &turn, answer: answer, took: took}
	for i := range answer.Members {
		if answer.Members[i].Pod.UID == pod.UID {
			c.node = answer.Members[i].Node
		}
	}
	klog.FromContext(ctx).V(4).Info("Planned a gang", "gang", turn.Gang.Key.String(), "members", len(answer.Members), "level", answer.Plan.Level, "took", took)
	state.Write(cycleKey, c)
	return only(c.node), nil
}

// plan finds places: if possible, without nodes whose kubelets refuse pods; and with any GPU model if the
// model of the running members, or the promised one, has no room and its time is over.
func (p *Plugin) plan(q *gangstate.Question, now time.Time) (*gangstate.Answer, error) {
	if refusals := p.refusals; refusals.Any() && q.Closed == nil {
		elsewhere := *q
		elsewhere.Closed = refusals.Refuses
		if answer, err := p.planner.Plan(&elsewhere); err == nil {
			return answer, nil
		}
	}
	answer, err := p.planner.Plan(q)
	var room *fabric.UnplaceableError
	if from := p.gangs.AnyModelFrom(q.Turn); errors.As(err, &room) && room.MixedFits && !from.IsZero() && !now.Before(from) {
		q.AnyModel = true
		return p.planner.Plan(q)
	}
	return answer, err
}

// patient makes a gang wait, for a bounded time from when it first could have been placed, while its plan
// is worse than on the empty cluster and its level is worse than the preferred one. It returns nil if the
// gang does not wait.
func (p *Plugin) patient(pod *v1.Pod, q *gangstate.Question, a *gangstate.Answer) *fwk.Status {
	g := q.Turn.Gang
	if g.Wishes.Patience == 0 || !q.Turn.Fresh {
		return nil
	}
	until := p.gangs.Room(g.Key).Add(g.Wishes.Patience)
	if !p.shared.Clock().Now().Before(until) || g.Wishes.Preferred != "" && a.Plan.Preferred {
		return nil
	}
	empty := *q
	empty.Empty, empty.Cleared = true, nil
	best, err := p.planner.Plan(&empty)
	if err != nil || !best.BetterThan(a) {
		return nil // a plan that is impossible on the empty cluster is not waited for
	}
	why := g.Key.String() + " " + gangrequest.PatienceReason(until, a.Plan, best.Plan)
	p.wait(pod, g.Key, &gangstate.Wait{Why: why, Until: until, ForChange: true})
	return refused(why)
}

// unplaceable makes a gang wait for a change. If it lacks room, PostFilter looks for victims, and if it
// has waited for long, places are kept for it.
func (p *Plugin) unplaceable(state fwk.CycleState, pod *v1.Pod, q *gangstate.Question, err error, began time.Time) *fwk.Status {
	key := q.Turn.Gang.Key
	w := &gangstate.Wait{Why: fmt.Sprintf("%s: %v", key, err), ForChange: true, Alike: p.alike(q.Turn)}
	var room *fabric.UnplaceableError
	if errors.As(err, &room) {
		if short := p.planner.Short(); short != "" && !room.MixedFits {
			w.Why += ": " + short
		}
		if lacks := gangstate.LacksLabels(q.Turn.Gang, q.View); lacks != "" {
			w.Why += "; " + lacks
		}
		if kept := gangstate.KeptFor(q); kept != "" {
			w.Why += "; " + kept
		}
		// A node hold that has begun goes on: it would begin again and again while members of several models
		// have room now and then.
		if !room.MixedFits || p.gangs.Draining(q.Turn) != "" {
			p.drain(q, w)
		}
		if from := p.gangs.AnyModelFrom(q.Turn); room.MixedFits && !from.IsZero() && began.Before(from) {
			w.Until = from
			what := "any model"
			if q.Turn.Fresh {
				what = "another model than the promised one"
			}
			w.Why += "; takes " + what + " from " + from.UTC().Format(time.RFC3339) + " on"
		}
		state.Write(failedKey, &failed{question: q, mixedFits: room.MixedFits})
	} else {
		p.gangs.NoDrain(q.Turn)
		w.Why = fmt.Sprintf("%s cannot be placed: %v", key, err)
	}
	p.gangs.PlanTook(p.shared.Clock().Since(began))
	p.wait(pod, key, w)
	return refused(w.Why)
}

// wait makes a gang wait, and has PreEnqueue refuse the member of this cycle when the cycle ends. The
// queue checks a pod that only PreFilter refused at each event of the cluster: with 1,000 such gangs that
// takes some 2 ms an event. It does not check one that PreEnqueue refused, since this plugin registers no
// events.
func (p *Plugin) wait(pod *v1.Pod, key gangrequest.Key, w *gangstate.Wait) {
	p.gangs.Wait(key, w)
	p.doer.Activate([]*v1.Pod{pod})
}

// alike returns the members above the minimum with the same request as the planned one.
func (p *Plugin) alike(turn *gangstate.Turn) (uids []types.UID) {
	if len(turn.Rest) == 0 {
		return nil
	}
	shape := p.shapeOf(turn.Pods[0])
	for _, pod := range turn.Rest {
		if p.shapeOf(pod) == shape {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

// shapeOf returns gangstate.KeyOf of a pod; empty if the pod cannot be read.
func (p *Plugin) shapeOf(pod *v1.Pod) string {
	d, err := p.demand(pod)
	if err != nil {
		return ""
	}
	return gangstate.KeyOf(pod, d)
}

// goOn returns the node of a member that has its place.
func (p *Plugin) goOn(state fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status) {
	node, ok := p.gangReserver.Planned(pod.UID)
	if !ok {
		// It was bound before, and the API server's answer was lost: the binding may have been carried out.
		d, err := p.demand(pod)
		if err != nil {
			return nil, refused(err.Error())
		}
		if node, _ = p.gangReserver.TakesAgain(d, p.handle.SnapshotSharedLister().NodeInfos()); node == "" {
			p.gangs.RefusedBy(pod, gangstate.Refusal{}, 0, "gang: the place of a member is gone")
			return nil, refused("gang: the pod's place is gone; it gets another one")
		}
	}
	state.Write(cycleKey, &cycle{node: node})
	return only(node), nil
}

// Filter keeps a member to its node, since a nominated node is tried whatever PreFilter returns. It keeps
// other pods off the capacity kept for gangs: also those that would have room beside it once others are
// evicted.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	switch c := read(state); {
	case c == nil:
		k, never := p.preSelector.KeptFrom(pod, requestOf(state), info)
		switch {
		case k == nil:
		case never:
			return refused(k.Why(pod.Namespace))
		default:
			return fwk.NewStatus(fwk.Unschedulable, k.Why(pod.Namespace))
		}
	case info.Node().Name != c.node:
		return refused("the gang's plan has another node for the pod")
	}
	return nil
}

// PreFilterExtensions is nil: the plan does not depend on the pods of a node.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// PostFilter is final for members: no pod is evicted for one of them alone. For a gang without room it
// evicts others. If another plugin refused the member's node, that is recorded, and all members are
// planned again.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, m fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if _, member := gangrequest.KeyOf(pod); !member {
		return nil, p.retryFar(klog.FromContext(ctx), state, pod)
	}
	status := p.goesOn(ctx, state, pod, m)
	return p.nomination(pod), status
}

// goesOn returns the status of a member whose cycle found no node, after updating its gang.
func (p *Plugin) goesOn(ctx context.Context, state fwk.CycleState, pod *v1.Pod, m fwk.NodeToStatusReader) *fwk.Status {
	if f := readFailed(state); f != nil {
		return p.preempt(ctx, f, pod)
	}
	c := read(state)
	if c == nil {
		if _, err := state.Read(askedKey); err != nil {
			// An earlier plugin refused the pod on every node. Others do not wait for it with places held.
			p.gangs.RefusedBy(pod, gangstate.Refusal{}, 0, fmt.Sprintf("gang: pod %s is refused: %s", pod.Name, m.Get("").Message()))
		}
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	status := m.Get(c.node)
	refusal := gangstate.Refusal{Node: c.node, Shape: p.shapeOf(pod)}
	var generation int64
	if info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(c.node); err == nil {
		generation = info.GetGeneration()
	}
	p.holdOn(ctx, c, pod)
	p.gangs.PlanTook(c.took) // in vain
	p.gangs.RefusedBy(pod, refusal, generation, fmt.Sprintf("gang: node %s is refused: %s", c.node, status.Message()))
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the gang is planned anew")
}

func only(node string) *fwk.PreFilterResult {
	return &fwk.PreFilterResult{NodeNames: sets.New(node)}
}
