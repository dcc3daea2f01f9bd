// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// maxShort bounds how many reasons are named.
const maxShort = 3

// Short says what other than devices keeps members off nodes in the last plan, if that found no room:
// "too little cpu for one more like train-1 on 2 nodes". It is empty if only devices are short, and
// after a plan that found places.
func (p *Planner) Short() string {
	b := p.failed
	if b == nil || len(b.request.Shapes) != len(b.shapes) {
		return ""
	}
	counts := map[string]int{}
	short := b.tooFew()
	for i, s := range b.shapes {
		if !short[i] {
			continue
		}
		for why, n := range b.shortages(i) {
			counts[fmt.Sprintf(why, s.pod.Name)] += n
		}
	}
	whys := make([]string, 0, len(counts))
	for why := range counts {
		whys = append(whys, why)
	}
	slices.SortFunc(whys, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	for i, why := range whys {
		whys[i] = why + " on " + counted(counts[why], "node")
	}
	if len(whys) > maxShort {
		whys = append(whys[:maxShort], fmt.Sprintf("%d more reasons", len(whys)-maxShort))
	}
	return strings.Join(whys, ", ")
}

// shortages count the nodes by the reason that keeps one member more of a shape off them. A cordon, a
// taint or a selector is a reason only where no node with such devices is left.
func (b *build) shortages(at int) map[string]int {
	counts, left := map[string]int{}, 0
	for node, info := range b.infos {
		if info == nil || info.Node() == nil || !offers(info, b.shapes[at].demand) {
			continue
		}
		why := b.shortOn(at, node, info)
		if why != "" {
			counts[why]++
		}
		if !slices.Contains(ineligible[:], why) {
			left++
		}
	}
	if left > 0 {
		for _, why := range ineligible {
			delete(counts, why)
		}
	}
	return counts
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// tooFew says of which shapes nodes take fewer members than there are. If that is none, the shapes have
// too little room beside each other, and it is all of them.
func (b *build) tooFew() []bool {
	out := make([]bool, len(b.shapes))
	for i := range b.shapes {
		want := 0
		for _, m := range b.request.Members {
			if !m.Bound && m.Shape == i {
				want++
			}
		}
		for node := range b.infos {
			want -= b.request.Shapes[i].Nodes[node].Members()
		}
		out[i] = want > 0
	}
	if !slices.Contains(out, true) {
		for i := range out {
			out[i] = true
		}
	}
	return out
}

// The reasons, of a member. Those of ineligible are true whatever is used on the node.
var (
	ineligible = [...]string{"the node selector or affinity of %s is not met", "a cordon keeps %s off", "a taint that %s does not tolerate"}
	fewCPUs    = "too little cpu for one more like %s"
	lowMemory  = "too little memory for one more like %s"
	lowStorage = "too little ephemeral-storage for one more like %s"
	portInUse  = "the host port of %s is in use"
	samePort   = "no second member with the host port of %s"
	keptApart  = "no second member like %s, by its anti-affinity,"
)

// offers reports whether a node has such devices at all.
func offers(info fwk.NodeInfo, d *placement.Demand) bool {
	return !d.HasGPUs() || info.GetAllocatable().GetScalarResources()[v1.ResourceName(d.Resources[0].Name)] > 0
}

// shortOn is which reason keeps one member more of a shape off a node that has the devices for it; empty if
// nothing does, or if devices are short.
func (b *build) shortOn(at, node int, info fwk.NodeInfo) string {
	s := b.shapes[at]
	switch why, _ := s.eligible.Judge(info.Node()); why {
	case placement.NotSelected:
		return ineligible[0]
	case placement.Unschedulable:
		return ineligible[1]
	case placement.Tainted:
		return ineligible[2]
	case placement.Eligible:
	}
	held := int64(b.request.Shapes[at].Nodes[node].Members())
	have, used, asks := info.GetAllocatable(), info.GetRequested(), s.demand.Request
	lacks := func(have, used, asks int64) bool { return asks > 0 && have-used < (held+1)*asks }
	for name, n := range asks.Scalars {
		if lacks(have.GetScalarResources()[name], used.GetScalarResources()[name], n) {
			return ""
		}
	}
	switch {
	case !s.admits(info, false):
		return portInUse
	case lacks(have.GetMilliCPU(), used.GetMilliCPU(), asks.MilliCPU):
		return fewCPUs
	case lacks(have.GetMemory(), used.GetMemory(), asks.Memory):
		return lowMemory
	case lacks(have.GetEphemeralStorage(), used.GetEphemeralStorage(), asks.EphemeralStorage):
		return lowStorage
	case s.alone && held == 1 && len(s.ports) > 0:
		return samePort
	case s.alone && held == 1:
		return keptApart
	}
	return ""
}
