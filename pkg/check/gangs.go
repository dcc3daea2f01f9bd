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

	"github.com/nvtopo/nvtopo/pkg/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// gang is one gang with what is judged about it.
type gang struct {
	*gangrequest.Gang
	group *schedulingv1alpha1.PodGroup // nil if it has none
	bound []*v1.Pod                    // live members that have a node, in the order of their ranks
	// first is when the first of them was bound; zero if the API server has not recorded it.
	first time.Time
}

// checkGangs checks what is promised of all pods of a gang together.
func (s *scene) checkGangs() {
	groups := map[gangrequest.Key]*schedulingv1alpha1.PodGroup{}
	for i := range s.w.PodGroups {
		g := &s.w.PodGroups[i]
		groups[gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: g.Namespace, Name: g.Name}] = g
	}
	members := map[gangrequest.Key][]*v1.Pod{}
	for i := range s.w.Pods {
		if key, ok := gangrequest.KeyOf(&s.w.Pods[i]); ok {
			members[key] = append(members[key], &s.w.Pods[i])
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
		if len(g.bound) == 0 || !s.placed(g) {
			continue
		}
		g.first = boundAt(slices.MinFunc(g.bound, func(a, b *v1.Pod) int { return boundAt(a).Compare(boundAt(b)) }))
		s.report.Checked.Gangs++
		s.checkWhole(g)
		s.checkRanks(g)
		s.checkLevel(g)
	}
}

// placed says whether one of our schedulers placed the gang as a gang. All members are its
// own, and it wrote something about them: a profile need not have the plugin.
func (s *scene) placed(g *gang) bool {
	for _, p := range g.Members.Live {
		if _, ours := s.profiles[p.Spec.SchedulerName]; !ours {
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
func (s *scene) checkWhole(g *gang) {
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
	if have+waiting < g.Minimum || !s.overdue(g) {
		return
	}
	s.pend(Violation{
		Invariant: GangPartlyBound, Objects: []Object{g.object()},
		Message: fmt.Sprintf("%d of %d members are bound, the first since %s, and %d wait: all or none should be", have, g.Minimum, stamp(g.first), waiting),
	})
}

// overdue reports whether a gang has been partly bound for longer than the scheduler lets it be.
func (s *scene) overdue(g *gang) bool {
	timeout := ptr.Deref(s.w.ScheduleTimeout, gangrequest.DefaultScheduleTimeout)
	return timeout > 0 && !s.w.Now.Before(g.first.Add(timeout))
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
func (s *scene) checkRanks(g *gang) {
	taken := map[int]*v1.Pod{}
	for _, p := range g.bound {
		rank, ok := gangrequest.RankOf(p)
		if !ok {
			continue
		}
		if other := taken[rank]; other != nil {
			s.violate(Violation{
				Invariant: GangRankShared, Objects: []Object{g.object(), podObject(other), podObject(p)},
				Field: "metadata.annotations[" + gangrequest.RankKey + "]", Message: fmt.Sprintf("both have the rank %d", rank),
			})
		}
		taken[rank] = p
	}
}

// checkLevel: all bound members are in one domain of the level that the gang requires.
func (s *scene) checkLevel(g *gang) {
	if g.Wishes.Required == "" {
		return
	}
	tree, levels := s.fabric()
	w, err := g.WishesIn(levels)
	if err != nil {
		s.note(Violation{Invariant: Unverified, Objects: []Object{g.object()}, Message: err.Error()})
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
	explained := s.fabricChanged(g)
	if unlabelled != "" {
		explained = fmt.Sprintf("node %s has no label of that level", unlabelled)
	}
	s.either(Violation{
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
func (s *scene) fabricChanged(g *gang) string {
	since := g.first.Add(-time.Second - s.w.lag())
	if ct := s.w.ClusterTopology; ct != nil {
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
		if n := s.node(p.Spec.NodeName).object; n != nil {
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
func (s *scene) fabric() (*fabric.Tree, []gangrequest.Level) {
	if s.tree != nil {
		return s.tree, s.levels
	}
	nodes := make([]clustertopology.Node, len(s.w.Nodes))
	for i := range s.w.Nodes {
		nodes[i] = clustertopology.Node{Name: s.w.Nodes[i].Name, Labels: s.w.Nodes[i].Labels}
	}
	ct := s.w.ClusterTopology
	if ct == nil {
		ct = clustertopology.Default(nodes)
	}
	for _, l := range ct.Spec.Levels {
		s.levels = append(s.levels, gangrequest.Level{Name: l.Name, NodeLabel: l.NodeLabel})
	}
	s.tree, _ = clustertopology.Tree(ct, nodes)
	return s.tree, s.levels
}

// list names the first few.
func list(names []string) string {
	const most = 4
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
