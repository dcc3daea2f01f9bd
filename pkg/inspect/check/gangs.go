// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// gangs checks what is promised of all pods of a gang together.
type gangs struct {
	*Report

	w        *World
	profiles map[string]diagnosis.Profile
	nodes    map[string]*node
	tree     *fabric.Tree        // made when a gang needs it
	levels   []gangrequest.Level // of the tree
}

// gang is one gang with what is judged about it.
type gang struct {
	*gangrequest.Gang
	group *schedulingv1alpha1.PodGroup // nil if it has none
	bound []*v1.Pod                    // live members that have a node, in the order of their ranks
	// first is when the first of them was bound; zero if the API server has not recorded it.
	first time.Time
}

func (c *gangs) check() {
	groups := map[gangrequest.Key]*schedulingv1alpha1.PodGroup{}
	for i := range c.w.PodGroups {
		g := &c.w.PodGroups[i]
		groups[gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: g.Namespace, Name: g.Name}] = g
	}
	members := map[gangrequest.Key][]*v1.Pod{}
	for i := range c.w.Pods {
		if key, ok := gangrequest.KeyOf(&c.w.Pods[i]); ok {
			members[key] = append(members[key], &c.w.Pods[i])
		}
	}
	compare := func(a, b gangrequest.Key) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), strings.Compare(a.String(), b.String()))
	}
	for _, key := range slices.SortedFunc(maps.Keys(members), compare) {
		g := &gang{Gang: gangrequest.Read(key, groups[key], members[key]), group: groups[key]}
		for _, p := range g.Members.Live {
			if p.Spec.NodeName != "" {
				g.bound = append(g.bound, p)
			}
		}
		if len(g.bound) == 0 || !c.placed(g) {
			continue
		}
		g.first = boundAt(slices.MinFunc(g.bound, func(a, b *v1.Pod) int { return boundAt(a).Compare(boundAt(b)) }))
		c.Checked.Gangs++
		c.checkWhole(g)
		c.checkRanks(g)
		c.checkLevel(g)
	}
}

// placed says whether one of our schedulers placed the gang as a gang. All members are its
// own, and it wrote something about them: a profile need not have the plugin.
func (c *gangs) placed(g *gang) bool {
	for _, p := range g.Members.Live {
		if _, ours := c.profiles[p.Spec.SchedulerName]; !ours {
			return false
		}
	}
	if g.group != nil && (g.group.Annotations[gangrequest.StateKey] != "" || g.group.Annotations[gangrequest.PlacementKey] != "") {
		return true
	}
	return slices.ContainsFunc(g.bound, func(p *v1.Pod) bool {
		return p.Annotations[gangrequest.RankKey] != "" || p.Annotations[gangrequest.PlacementKey] != ""
	})
}

func (g *gang) object() Object {
	return Object{Kind: g.Key.Source.String(), Namespace: g.Key.Namespace, Name: g.Key.Name, UID: g.UID}
}

// checkWhole: the members that were there when the first was bound follow within the
// scheduleTimeout of the scheduler, or all go. Members that came later replace others or are
// extras. A gang that was whole once may miss members for as long as there is no room.
func (c *gangs) checkWhole(g *gang) {
	have := len(g.bound) + len(g.Members.Ended)
	if have >= g.Minimum || g.wasWhole() || g.first.IsZero() {
		return
	}
	waiting := 0
	for _, p := range g.Members.Live {
		if p.Spec.NodeName == "" && !p.CreationTimestamp.After(g.first) {
			waiting++
		}
	}
	if have+waiting < g.Minimum || !c.overdue(g) {
		return
	}
	c.pend(Violation{
		Invariant: GangPartlyBound, Objects: []Object{g.object()},
		Message: fmt.Sprintf("%d of %d members are bound, the first since %s, and %d wait: all or none should be", have, g.Minimum, stamp(g.first), waiting),
	})
}

// overdue reports whether a gang has been partly bound for longer than the scheduler lets it be.
func (c *gangs) overdue(g *gang) bool {
	timeout := ptr.Deref(c.w.ScheduleTimeout, gangrequest.DefaultScheduleTimeout)
	return timeout > 0 && !c.w.Now.Before(g.first.Add(timeout))
}

// wasWhole says whether all members of the last attempt were bound. Without a PodGroup, and
// where its state cannot be read, the sign is the placement, which is written then.
func (g *gang) wasWhole() bool {
	if state, ok := gangrequest.StateOf(g.group); ok {
		return state.Whole
	}
	return g.group != nil || slices.ContainsFunc(g.bound, func(p *v1.Pod) bool { return p.Annotations[gangrequest.PlacementKey] != "" })
}

// checkRanks: each bound member has a rank of its own.
func (c *gangs) checkRanks(g *gang) {
	taken := map[int]*v1.Pod{}
	for _, p := range g.bound {
		rank, ok := gangrequest.RankOf(p)
		if !ok {
			continue
		}
		if other := taken[rank]; other != nil {
			c.violate(Violation{
				Invariant: GangRankShared, Objects: []Object{g.object(), podObject(other), podObject(p)},
				Field: "metadata.annotations[" + gangrequest.RankKey + "]", Message: fmt.Sprintf("both have the rank %d", rank),
			})
		}
		taken[rank] = p
	}
}

// checkLevel: all bound members are in one domain of the level that the gang requires.
func (c *gangs) checkLevel(g *gang) {
	if g.Wishes.Required == "" {
		return
	}
	tree, levels := c.fabric()
	w, err := g.WishesIn(levels)
	if err != nil {
		c.note(Violation{Invariant: Unverified, Objects: []Object{g.object()}, Message: err.Error()})
		return
	}
	depth, ok := tree.DepthOf(w.Required)
	if !ok || depth == 0 {
		return
	}
	domains, unlabelled := domainsOf(tree, depth, g.bound)
	if len(domains) < 2 {
		return
	}
	explained := c.fabricChanged(g)
	if unlabelled != "" {
		explained = fmt.Sprintf("node %s has no label of that level", unlabelled)
	}
	c.either(Violation{
		Invariant: GangScattered, Objects: []Object{g.object()}, Field: "metadata.annotations[" + gangrequest.RequiredKey + "]",
		Message: fmt.Sprintf("the members must be in one %s, and are in %s", w.Required, list(domains)),
	}, explained, DegradedSince, ", but ")
}

// domainsOf returns the paths of the domains that pods are in, sorted. A node without a label
// is a domain of its own, and one such node is named. Nodes that are gone do not count: so
// will be their pods.
func domainsOf(tree *fabric.Tree, depth int, pods []*v1.Pod) (domains []string, unlabelled string) {
	for _, p := range pods {
		n, ok := tree.Node(p.Spec.NodeName)
		if !ok {
			continue
		}
		path := tree.Name(n)
		if depth <= tree.Depth() {
			path = tree.Domains(depth)[tree.DomainOf(depth, n)].Path
		}
		if path == "" {
			path, unlabelled = tree.Name(n), tree.Name(n)
		}
		domains = append(domains, path)
	}
	slices.Sort(domains)
	return slices.Compact(domains), unlabelled
}

// fabricChanged says which change after the first member was bound, or just before, explains
// that the gang is not where it should be, or "".
func (c *gangs) fabricChanged(g *gang) string {
	since := g.first.Add(-time.Second - c.w.lag())
	if ct := c.w.ClusterTopology; ct != nil {
		if at, ok := changedAfter(&ct.ObjectMeta, "f:spec", since); ok {
			return "the ClusterTopology changed at " + stamp(at)
		}
	}
	if g.group != nil {
		if at, ok := changedAfter(&g.group.ObjectMeta, "f:"+gangrequest.RequiredKey, since); ok {
			return fmt.Sprintf("the PodGroup's %s changed at %s", gangrequest.RequiredKey, stamp(at))
		}
	}
	for _, p := range g.bound {
		if at := c.nodes[p.Spec.NodeName]; at != nil && at.object != nil {
			n := at.object
			if n.CreationTimestamp.After(boundAt(p)) {
				return fmt.Sprintf("node %s was made anew at %s", n.Name, stamp(n.CreationTimestamp.Time))
			}
			if at, ok := changedAfter(&n.ObjectMeta, "f:labels", since); ok {
				return fmt.Sprintf("the labels of node %s may have changed at %s", n.Name, stamp(at))
			}
		}
		if at, ok := changedAfter(&p.ObjectMeta, "f:"+gangrequest.RequiredKey, since); ok {
			return fmt.Sprintf("%s of pod %s changed at %s", gangrequest.RequiredKey, p.Name, stamp(at))
		}
	}
	return ""
}

// changedAfter returns when somebody who owns the field last wrote the object, if that was
// after since and was not its creation.
func changedAfter(o *metav1.ObjectMeta, field string, since time.Time) (time.Time, bool) {
	for i := range o.ManagedFields {
		m := &o.ManagedFields[i]
		if m.Time != nil && m.Time.After(since) && m.Time.After(o.CreationTimestamp.Time) && owns(m, field) {
			return m.Time.Time, true
		}
	}
	return time.Time{}, false
}

// fabric is the tree of the cluster's nodes, and its levels.
func (c *gangs) fabric() (*fabric.Tree, []gangrequest.Level) {
	if c.tree != nil {
		return c.tree, c.levels
	}
	nodes := make([]clustertopology.Node, len(c.w.Nodes))
	for i := range c.w.Nodes {
		nodes[i] = clustertopology.Node{Name: c.w.Nodes[i].Name, Labels: c.w.Nodes[i].Labels}
	}
	ct := c.w.ClusterTopology
	if ct == nil {
		ct = clustertopology.Default(nodes)
	}
	for _, l := range ct.Spec.Levels {
		c.levels = append(c.levels, gangrequest.Level{Name: l.Name, NodeLabel: l.NodeLabel})
	}
	c.tree, _ = clustertopology.Tree(ct, nodes)
	return c.tree, c.levels
}

// list names the first few.
func list(names []string) string {
	const most = 4
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
