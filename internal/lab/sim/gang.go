// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/baseline"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

const nodeBands = nodeindex.Bands

// gangPolicy chooses nodes and GPUs for all pods of a gang. Without parts there is no room.
type gangPolicy interface {
	plan(size, gpus, pods int) ([]part, error)
}

// GangPolicies lists the names Config.GangPolicy may have.
func GangPolicies() []string {
	out := []string{Ours}
	for _, r := range foreignRules(nil) {
		out = append(out, r.Name())
	}
	return out
}

func foreignRules(order []int) []baseline.GangRule {
	return []baseline.GangRule{baseline.Kueue(), baseline.Koordinator(), baseline.Volcano(), baseline.FirstFit(order)}
}

// newGangPolicy returns the policy for gangs, and the one for the pods beside them.
func newGangPolicy(c *Config, s *state, x *site, m *mishaps) (gangPolicy, policy, error) {
	if c.GangPolicy == Ours {
		singles := newOurs(c, s)
		singles.site = x
		singles.index.SetPlaces(x.tree.Places(len(c.Nodes), func(i int) string { return c.Nodes[i].Name }))
		return &fabricPlans{site: x}, singles, nil
	}
	rules := foreignRules(x.number)
	i := slices.IndexFunc(rules, func(r baseline.GangRule) bool { return r.Name() == c.GangPolicy })
	if i < 0 {
		return nil, nil, fmt.Errorf("no gang policy %q, want one of %s", c.GangPolicy, strings.Join(GangPolicies(), ", "))
	}
	pick := func(_ *kind, free nvtopo.Mask, n int) (nvtopo.Mask, bool) { return lowest(free, n), true }
	singles := &twoSteps{state: s, choose: x.binpack, pick: pick, mishaps: m}
	return &countedPlans{site: x, rule: rules[i], mishaps: m}, singles, nil
}

// binpack returns the node with the fewest free GPUs that suffice; the first of equal ones.
func (x *site) binpack(s *state, gpus int) int {
	for free := gpus; free < len(x.byFree); free++ {
		if x.byFree[free] > 0 {
			return slices.IndexFunc(s.nodes, func(n node) bool { return n.level.count == int64(free) })
		}
	}
	return -1
}

// fabricPlans is the scheduler's own planner.
type fabricPlans struct {
	site    *site
	members []fabric.Member
}

func (p *fabricPlans) plan(size, gpus, pods int) ([]part, error) {
	x := p.site
	if !x.has(size, pods) {
		return nil, nil
	}
	for len(p.members) < pods {
		p.members = append(p.members, fabric.Member{})
	}
	plan, err := fabric.Place(x.tree, &fabric.Request{
		Shapes: []fabric.Shape{x.shape(size, gpus, pods, x.open(size))}, Members: p.members[:pods],
	})
	var none *fabric.UnplaceableError
	switch {
	case errors.As(err, &none):
		return nil, nil
	case err != nil:
		return nil, err
	}
	out := make([]part, pods)
	for i, n := range plan.Nodes {
		out[i] = part{node: x.node[n], set: plan.Sets[i]}
	}
	return out, nil
}

// countedPlans is the usual gang policy: a rule chooses nodes by the number of their free GPUs, and each
// node gives its pods the first permitted GPUs.
type countedPlans struct {
	site    *site
	rule    baseline.GangRule
	mishaps *mishaps
}

func (p *countedPlans) plan(size, gpus, pods int) ([]part, error) {
	x := p.site
	if x.counted(gpus) < pods {
		return nil, nil
	}
	nodes, ok := p.rule.Place(x.tree, x.free, gpus, pods)
	if !ok {
		return nil, nil
	}
	out := make([]part, 0, pods)
	taken := map[int]nvtopo.Mask{}
	for _, number := range nodes {
		at := x.node[number]
		set, ok := x.state.first(at, taken[at], size)
		if !ok {
			p.mishaps.unfit++
			return nil, nil
		}
		taken[at] |= set
		out = append(out, part{node: at, set: set})
	}
	return out, nil
}

// first returns the first GPUs that a node may give a pod, once others have taken some: of the first NUMA
// node that has enough, if its kubelet insists on one.
func (s *state) first(at int, taken nvtopo.Mask, size int) (nvtopo.Mask, bool) {
	n, gpus := &s.nodes[at], s.sizes.gpus[size]
	free := n.free() &^ taken
	if s.sizes.constraints[size].Policy == nvtopo.PolicySingleNUMANode {
		free = aligned(n.kind.tables.Graph(), free, gpus)
	}
	if free.Len() < gpus {
		return 0, false
	}
	return lowest(free, gpus), true
}
