// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// noRoomElsewhere is said of pods in the way that may be moved, and that the other nodes do not take.
const noRoomElsewhere = "the other nodes have no room for all these pods"

// relocate says where the pods in the way on a node would go if the node were cordoned: each where the scheduler
// would place it, once those before it are placed. If one of them has no other node, it says so of none; and if
// the pod that asks would not get their place, that they stay.
func (x *podAsk) relocate(c *Candidate) {
	if !c.homeless() {
		return
	}
	n := x.byName[c.Node]
	closed := *n
	closed.object = n.object.DeepCopy()
	closed.object.Spec.Unschedulable = true
	after, gone, disrupted, stays := x.with(&closed), map[types.UID]bool{}, map[int]int32{}, ""
	to := make([]string, len(c.Blockers))
	for i := range c.Blockers {
		p := n.pod(c.Blockers[i].Pod)
		q, err := x.question(p)
		if err != nil {
			return
		}
		chosen := after.forPod(q).choice()
		if chosen == nil || chosen.object.Name == c.Node {
			return
		}
		for _, budget := range x.budgets.Of(p) {
			if disrupted[budget]++; disrupted[budget] > x.budgets.Allowed[budget] {
				stays = "a PodDisruptionBudget does not allow the disruption of all of them"
			}
		}
		gone[p.UID], to[i] = true, chosen.object.Name
		after = after.with(chosen.taking(q, x.now))
	}
	stays = cmp.Or(stays, x.needed(to), x.ahead(after, n.without(gone)))
	for i := range to {
		if c.Blockers[i].Stays = stays; stays == "" {
			c.Blockers[i].MovesTo = to[i]
		}
	}
}

// homeless reports whether the pods in the way may be moved, and none is known to have a node to go to.
func (c *Candidate) homeless() bool {
	return len(c.Blockers) > 0 && !slices.ContainsFunc(c.Blockers, func(b Blocker) bool { return b.Stays != "" || b.MovesTo != "" })
}

// pods names the pods in the way.
func (c *Candidate) pods() (out []string) {
	for i := range c.Blockers {
		out = append(out, c.Blockers[i].Pod)
	}
	return out
}

// movesTo names the nodes that would take the pods in the way.
func (c *Candidate) movesTo() (out []string) {
	for i := range c.Blockers {
		if to := c.Blockers[i].MovesTo; to != "" && !slices.Contains(out, to) {
			out = append(out, to)
		}
	}
	return out
}

// maxAhead is the most pods that wait before the one that asks of which it is found out whether they would take
// the place: each costs a look at all nodes, and any tenant may make thousands.
const maxAhead = 128

// needed says that pods would go to a node that has room for a member of the gang now: there they would be in its
// way as well. It is empty if they would not.
func (x *podAsk) needed(to []string) string {
	_, member := gangrequest.KeyOf(x.q.pod)
	for _, name := range to {
		if member && len(x.byName[name].obstacles(x.q, x.now)) == 0 {
			if len(to) > 1 {
				return "one of the pods in the way would go to a node that the gang needs: " + name
			}
			return "it would go to a node that the gang needs: " + name
		}
	}
	return ""
}

// ahead says which pod or gang that waits comes before the one that asks, and would take the place that a node
// has once pods have moved to others; empty if none would.
func (x *podAsk) ahead(after *cluster, n *node) string {
	own, _ := gangrequest.KeyOf(x.q.pod)
	asked := map[gangrequest.Key]bool{own: true}
	looked := 0
	for _, p := range x.earlier() {
		q, err := x.question(p)
		if err != nil || len(n.obstacles(q, x.now)) > 0 {
			continue
		}
		if looked++; looked > maxAhead {
			return fmt.Sprintf("more than %d pods come before, and one of them may take the place", maxAhead)
		}
		const takes = ", which comes before, would take the place"
		key, member := gangrequest.KeyOf(p)
		switch {
		case member && asked[key]:
		case member:
			asked[key] = true
			if after.with(n).takesGang(key, n) && !x.takesGang(key, nil) {
				return key.String() + takes
			}
		case x.forPod(q).choice() == nil:
			if n = n.taking(q, x.now); len(n.obstacles(x.q, x.now)) > 0 {
				return "pod " + p.Namespace + "/" + p.Name + takes
			}
		}
	}
	return ""
}

// takesGang reports whether a gang that waits would be placed, and on a node among others; nil: on any.
func (c *cluster) takesGang(key gangrequest.Key, n *node) bool {
	g, group := c.world.readGang(key)
	if g.Err != nil || !g.Complete() || slices.ContainsFunc(g.Members.Live, func(p *v1.Pod) bool { return !placed(p) && c.world.lacksClaim(p) }) {
		return false
	}
	a, err := c.askOf(g, group)
	if err != nil {
		return false
	}
	plan, err := a.plan()
	return err == nil && (n == nil || slices.ContainsFunc(plan.Nodes, func(at int) bool { return a.nodes[at] == n }))
}

// earlier are the pods that wait and that the scheduler tries before the one that asks: those of a higher priority
// first, and of one priority those that wait for longest.
func (x *podAsk) earlier() (out []*v1.Pod) {
	order := func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(corev1.PodPriority(b), corev1.PodPriority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	}
	for i := range x.world.Pods {
		p := &x.world.Pods[i]
		if !placed(p) && !ended(p) && p.DeletionTimestamp == nil && len(p.Spec.SchedulingGates) == 0 && x.ours(p) && !x.world.lacksClaim(p) && order(p, x.q.pod) < 0 {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, order)
	return out
}

// choice is the node that the scheduler would choose for the pod, or one that would take it where nothing is
// compared; nil if there is none.
func (x *podAsk) choice() *node {
	if x.q.demand.HasGPUs() {
		c := &Choice{}
		(&ranking{podAsk: x}).bestNow(c, x.nodes[0])
		if n := x.byName[c.BestNode]; n != nil {
			return n
		}
	}
	for _, n := range x.nodes {
		if len(n.obstacles(x.q, x.now)) == 0 {
			return n
		}
	}
	return nil
}

// with is the cluster with one of its nodes as it is thought.
func (c *cluster) with(n *node) *cluster {
	out := *c
	out.nodes, out.byName = slices.Clone(c.nodes), maps.Clone(c.byName)
	at := slices.Index(out.nodes, out.byName[n.object.Name])
	out.nodes[at], out.byName[n.object.Name] = n, n
	return &out
}

// pod is one of the node's, by namespace and name.
func (n *node) pod(name string) *v1.Pod {
	at := slices.IndexFunc(n.here, func(p usage.LivePod) bool { return p.Object.Namespace+"/"+p.Object.Name == name })
	return n.here[at].Object
}

// taking is the node once it has been given a pod that it has room for.
func (n *node) taking(q *question, now time.Time) *node {
	out, p := *n, q.pod.DeepCopy()
	p.Spec.NodeName = n.object.Name
	delete(p.Annotations, allocation.Key)
	if n.graph != nil && n.counts == placement.Fits && q.demand.HasGPUs() {
		if a, reason := placement.Choose(n.usage(now), q.demand.Request, q.demand.WantCPUs); reason == placement.Fits {
			if text, err := a.Encode(); err == nil {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, allocation.Key, text)
			}
		}
	}
	live := usage.NewLivePod(p)
	out.here, out.listed, out.used = append(slices.Clip(n.here), live), append(slices.Clip(n.listed), live), nil
	return &out
}
