// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"cmp"
	"math"
	"slices"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// The states of a gang.
const (
	GangIncomplete = "incomplete" // members that start together are missing
	GangPending    = "pending"    // a needed member has no node
	GangRunning    = "running"    // as many as start together have a node, or have ended
	GangEnded      = "ended"      // all members have ended
	GangUnreadable = "unreadable" // its request cannot be read
)

// Gangs is the document of all gangs.
type Gangs struct {
	Version int64  `json:"version"`
	Items   []Gang `json:"items"` // by namespace and name
}

// Gang is the summary of one gang.
type Gang struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Source    string `json:"source"` // kind of object that defines the gang
	State     string `json:"state"`
	Minimum   int    `json:"minimum"` // members that start together
	Have      int    `json:"have"`    // existing members
	Placed    int    `json:"placed"`  // members with a node
	// Level is the level of the smallest domain that contains all members with a node, and Domains are their
	// innermost domains. Empty while no member has a node.
	Level   string   `json:"level"`
	Domains []string `json:"domains"`
	// Crossings is the number of steps of the ring of ranks that lead to another domain, by level.
	Crossings map[string]int `json:"crossings"`
	// EstimateMillis is the scheduler's estimate of the time of an all-reduce in and between the nodes; 0 if
	// it is not known. Exact reports that the plan was proven best.
	EstimateMillis float64 `json:"estimateMillis"`
	Exact          bool    `json:"exact"`
	Reason         string  `json:"reason"` // why it cannot be placed, as far as its objects tell
}

// Member is a member of a gang.
type Member struct {
	Rank    int      `json:"rank"`
	Pod     string   `json:"pod"` // namespace/name
	Node    string   `json:"node"`
	Domains []string `json:"domains"` // of its node, outermost first
	GPUs    []int    `json:"gpus"`    // indices
	State   string   `json:"state"`
}

// GangDetail is the document of one gang.
type GangDetail struct {
	Gang

	Levels  []string `json:"levels"`
	Members []Member `json:"members"` // by rank
	// Placement is the scheduler's report on the gang; null if it is missing or unreadable.
	Placement *gangrequest.Placement `json:"placement"`
	// Explanation is the gang's explanation; null if it has none.
	Explanation *explain.Explanation `json:"explanation"`
	Warnings    []string             `json:"warnings"`
}

// gathered are the parts of a gang.
type gathered struct {
	key   gangrequest.Key
	group *schedulingv1alpha1.PodGroup
	pods  []*v1.Pod
}

func gather(o *clusterobjects.Objects) []*gathered {
	byKey := map[gangrequest.Key]*gathered{}
	get := func(key gangrequest.Key) *gathered {
		if byKey[key] == nil {
			byKey[key] = &gathered{key: key}
		}
		return byKey[key]
	}
	for i := range o.PodGroups {
		g := &o.PodGroups[i]
		get(gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: g.Namespace, Name: g.Name}).group = g
	}
	for i := range o.Pods {
		if key, ok := gangrequest.KeyOf(&o.Pods[i]); ok {
			g := get(key)
			g.pods = append(g.pods, &o.Pods[i])
		}
	}
	out := make([]*gathered, 0, len(byKey))
	for _, g := range byKey {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b *gathered) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name), cmp.Compare(a.key.Source, b.key.Source))
	})
	return out
}

// GangsOf lists the gangs.
func GangsOf(v *clusterview.View, o *clusterobjects.Objects) []Gang {
	out := []Gang{}
	for _, g := range gather(o) {
		read := gangrequest.Read(g.key, g.group, g.pods)
		out = append(out, gangInBrief(v.Tree(), g, read))
	}
	return out
}

// GangDetailOf returns the document of a gang; nil if there is none of the name. Of gangs of one name it
// is the first in the order of the sources.
func GangDetailOf(v *clusterview.View, o *clusterobjects.Objects, w *explain.World, namespace, name string) *GangDetail {
	for _, g := range gather(o) {
		if g.key.Namespace != namespace || g.key.Name != name {
			continue
		}
		read := gangrequest.Read(g.key, g.group, g.pods)
		out := &GangDetail{Gang: gangInBrief(v.Tree(), g, read), Levels: v.Levels, Members: membersOf(v, read), Placement: gangrequest.PlacementOf(g.group, read), Warnings: append([]string{}, read.Warnings...)}
		if e, err := explain.GangOf(w, g.key); err == nil { // else the World is of another moment
			out.Explanation = e
		}
		return out
	}
	return nil
}

func gangInBrief(t *fabric.Tree, g *gathered, read *gangrequest.Gang) Gang {
	out := Gang{
		Namespace: g.key.Namespace, Name: g.key.Name, Source: g.key.Source.String(), Minimum: read.Minimum, Have: read.Members.Count(), Domains: []string{},
		Crossings: map[string]int{},
	}
	var at []int // numbers of the nodes of the members that have one, by rank
	for _, p := range read.Members.Live {
		if p.Spec.NodeName == "" {
			continue
		}
		out.Placed++
		if n, ok := t.Node(p.Spec.NodeName); ok {
			at = append(at, n)
		}
	}
	onFabric(&out, t, at)
	if p := gangrequest.PlacementOf(g.group, read); p != nil && out.Placed > 0 {
		if e := float64(p.Estimate.Hierarchical); !math.IsInf(e, 0) && !math.IsNaN(e) {
			out.EstimateMillis = e
		}
		out.Exact = p.Exact
	}
	switch {
	case read.Err != nil:
		out.State, out.Reason = GangUnreadable, clip(read.Err.Error())
	case len(read.Members.Live) == 0 && len(read.Members.Ended) > 0:
		out.State = GangEnded
	case !read.Complete():
		out.State = GangIncomplete
	case out.Placed+len(read.Members.Ended) < read.Minimum:
		out.State = GangPending
	default:
		out.State = GangRunning
	}
	return out
}

// onFabric sets the domains of a gang's nodes, given in the order of the ranks.
func onFabric(out *Gang, t *fabric.Tree, at []int) {
	if len(at) == 0 {
		return
	}
	out.Level = t.LevelName(0)
	for depth := 1; depth <= t.Depth(); depth++ {
		var domains []string
		crossings := 0
		for i, n := range at {
			d := t.DomainOf(depth, n)
			if d != t.DomainOf(depth, at[(i+1)%len(at)]) {
				crossings++
			}
			if name := t.DomainName(depth, d); !slices.Contains(domains, name) {
				domains = append(domains, name)
			}
		}
		out.Crossings[t.LevelName(depth)], out.Domains = crossings, domains
		if len(domains) == 1 {
			out.Level = t.LevelName(depth)
		}
	}
}

func membersOf(v *clusterview.View, read *gangrequest.Gang) []Member {
	gpus := map[types.UID][]int{}
	for _, n := range v.Nodes {
		for i := range n.Pods {
			gpus[n.Pods[i].UID] = n.Pods[i].GPUs
		}
	}
	out := []Member{}
	for i, p := range read.Members.Live {
		out = append(out, memberOf(v, p, read.Members.Ranks[i], gpus[p.UID]))
	}
	for _, p := range read.Members.Ended {
		rank, ok := gangrequest.RankOf(p)
		if !ok {
			rank = -1
		}
		out = append(out, memberOf(v, p, rank, nil))
	}
	slices.SortStableFunc(out, func(a, b Member) int { return cmp.Compare(a.Rank, b.Rank) })
	return out
}

func memberOf(v *clusterview.View, p *v1.Pod, rank int, gpus []int) Member {
	m := Member{Rank: rank, Pod: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName, Domains: []string{}, GPUs: append([]int{}, gpus...)}
	m.State, _, _ = stateOf(p)
	if n := v.Node(p.Spec.NodeName); n != nil {
		m.Domains = append(m.Domains, n.Domains...)
	}
	return m
}
