// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// maxShort bounds how many reasons are named.
const maxShort = 3

// Short returns the reasons other than devices that keep members off the nodes of the cluster, if the
// last plan was for the present and found no room: "too little cpu for one more like train-1 on 2 nodes".
// It is empty if that is not the whole reason: devices are short, the gang requests a level, segments or
// a maximum for each domain, members are bound, or a node refuses for a reason that is not checked here.
// The plan is forgotten.
//
// The text is written on all members, so the numbers of nodes are in steps: they change all the time.
func (p *Planner) Short() string {
	b := p.failed
	p.failed = nil
	if b == nil || len(b.shapes) == 0 || !b.q.Turn.Fresh || b.wantsDomains() {
		return ""
	}
	var whys []string
	for i, s := range b.shapes {
		if !b.tooFew(i) {
			continue
		}
		counts := b.shortages(i)
		for _, why := range slices.Sorted(maps.Keys(counts)) {
			whys = append(whys, fmt.Sprintf(why, s.Pod.Name)+" on "+roughly(counts[why]))
		}
	}
	if len(whys) > maxShort {
		whys = append(whys[:maxShort], "and more")
	}
	return strings.Join(whys, ", ")
}

// wantsDomains reports whether the gang requests more than room in the cluster.
func (b *build) wantsDomains() bool {
	w := &b.q.Turn.Gang.Wishes
	return w.Required != "" || w.SegmentRequired || w.MaxPerDomain > 0
}

// roughly returns a number of nodes in steps of 1, 2, 5, 10, 20 and so on.
func roughly(n int) string {
	step, next := 1, 2
	for factor := 1; next <= n; {
		step = next
		switch next / factor {
		case 2:
			next = 5 * factor
		case 5:
			factor *= 10
			next = factor
		default:
			next = 2 * factor
		}
	}
	switch n {
	case 1:
		return "1 node"
	case step:
		return fmt.Sprintf("%d nodes", n)
	}
	return fmt.Sprintf("more than %d nodes", step)
}

// tooFew reports whether the nodes take fewer members of a shape than there are.
func (b *build) tooFew(at int) bool {
	want := 0
	for _, m := range b.gang.Members {
		if !m.Bound && m.Shape == at {
			want++
		}
	}
	for node := range b.infos {
		want -= b.supplies[at][node].Members()
	}
	return want > 0
}

// The reasons, of a member. Those of ineligible do not depend on the use of the node.
var (
	ineligible = [...]string{"the node selector or affinity of %s is not met", "a cordon keeps %s off", "a taint that %s does not tolerate"}
	fewCPUs    = "too little cpu for one more like %s"
	lowMemory  = "too little memory for one more like %s"
	lowStorage = "too little ephemeral-storage for one more like %s"
	portInUse  = "the host port of %s is in use"
	samePort   = "no second member with the host port of %s"
	keptApart  = "no second member like %s, by its anti-affinity,"
	unknown    = "unknown %s"
)

// shortages counts the nodes with such devices by the reason that keeps one more member of a shape off
// them; nil if a node does so for an unknown reason. A cordon, a taint or a selector is a reason only if
// no node is left.
func (b *build) shortages(at int) map[string]int {
	s, counts, left := b.shapes[at], map[string]int{}, false
	for node, info := range b.infos {
		if info == nil || info.Node() == nil || !offers(info, s.Demand) {
			continue
		}
		why, off := b.shortOn(s, info, int64(b.supplies[at][node].Members()), left)
		if why == unknown {
			return nil
		}
		if left = left || !off; why != "" {
			counts[why]++
		}
	}
	if left {
		for _, why := range ineligible {
			delete(counts, why)
		}
	}
	return counts
}

// shortOn returns the reason that keeps one more member of a shape off a node that takes held of them;
// empty if devices are short. off is true for the reasons of ineligible. A node without free devices is
// not checked for these if left, because another node is eligible.
func (b *build) shortOn(s *shape, info fwk.NodeInfo, held int64, left bool) (why string, off bool) {
	full := lacksDevices(info, s.Demand, held)
	if held == 0 && (!left || !full) {
		if why = b.offNode(s, info); why != "" {
			return why, why != unknown
		}
	}
	if full {
		return "", false
	}
	if why = s.lacking(info, held); why == "" && held == 0 {
		return unknown, false
	}
	return why, false
}

// offers reports whether a node has such devices at all.
func offers(info fwk.NodeInfo, d *placement.Demand) bool {
	return !d.HasGPUs() || info.GetAllocatable().GetScalarResources()[v1.ResourceName(d.Resources[0].Name)] > 0
}

// lacks reports whether less is left than one more member requests.
func lacks(have, used, asks, held int64) bool { return asks > 0 && have-used < (held+1)*asks }

// lacksDevices reports whether devices are too few for one more member than a node takes.
func lacksDevices(info fwk.NodeInfo, d *placement.Demand, held int64) bool {
	have, used := info.GetAllocatable().GetScalarResources(), info.GetRequested().GetScalarResources()
	return slices.ContainsFunc(d.Resources, func(r podrequest.ResourceRequest) bool {
		name := v1.ResourceName(r.Name)
		return lacks(have[name], used[name], int64(r.Count), held)
	})
}

// offNode returns the reason that keeps all members of a shape off a node, independent of its use.
func (b *build) offNode(s *shape, info fwk.NodeInfo) string {
	switch why, _ := s.Eligible.Judge(info.Node()); {
	case why == placement.NotSelected:
		return ineligible[0]
	case why == placement.Unschedulable:
		return ineligible[1]
	case why == placement.Tainted:
		return ineligible[2]
	case b.excluded(s, info):
		return unknown
	}
	return ""
}

// lacking returns the reason against one more member of a shape beside those that a node takes; empty if
// there is none.
func (s *shape) lacking(info fwk.NodeInfo, held int64) string {
	have, used, asks := info.GetAllocatable(), info.GetRequested(), s.Demand.Request
	switch {
	case held == 0 && !s.freePorts(info):
		return portInUse
	case lacks(have.GetMilliCPU(), used.GetMilliCPU(), asks.MilliCPU, held):
		return fewCPUs
	case lacks(have.GetMemory(), used.GetMemory(), asks.Memory, held):
		return lowMemory
	case lacks(have.GetEphemeralStorage(), used.GetEphemeralStorage(), asks.EphemeralStorage, held):
		return lowStorage
	case s.Alone && held == 1 && len(s.Ports) > 0:
		return samePort
	case s.Alone && held == 1:
		return keptApart
	}
	for _, name := range slices.Sorted(maps.Keys(asks.Scalars)) {
		if lacks(have.GetScalarResources()[name], used.GetScalarResources()[name], asks.Scalars[name], held) {
			return "too little " + strings.ReplaceAll(string(name), "%", "%%") + " for one more like %s"
		}
	}
	return ""
}
