// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// lesser says what to do about the wishes without which there is room: all of them in one step, each by the
// greatest value, of those that are tried, with which there is room. others are what would do as well.
func (s *scene) lesser(needed []wish, shapes []*question, fits func([]wish) bool, others ...string) string {
	steps := func(first, last string) string { return anyOf(slices.Concat([]string{first}, others, []string{last})) }
	set, dropped := s.lesserEach(needed, shapes, fits)
	if len(set) > 0 {
		step := "set " + strings.Join(set, " and ")
		if len(dropped) > 0 {
			step += " and leave out " + strings.Join(dropped, " and ")
		}
		return steps(step+", with which there is room when no other pod runs", "add nodes that have more")
	}
	if next := neverNext[needed[0].cause]; next[0] != "" && len(needed) == 1 {
		return steps(next[0], next[1])
	}
	return steps("ask for less of these: "+named(needed), "add nodes that have it")
}

// lesserEach returns what to set, as "KEY to VALUE", and which keys to leave out, for all wishes together.
// Both are empty if one of the wishes is no annotation, or there is no value to set.
func (s *scene) lesserEach(needed []wish, shapes []*question, fits func([]wish) bool) (set, dropped []string) {
	trial := slices.Clone(needed)
	for i, w := range needed {
		values := s.lesserValues(w.key, needed, shapes)
		at := slices.IndexFunc(values, func(value string) bool {
			trial[i] = w.with(value)
			return fits(trial)
		})
		switch {
		case at >= 0:
			set = append(set, w.key+" to "+values[at])
			continue
		case w.fix != "":
			set = append(set, w.fix)
		case w.key != "":
			dropped = append(dropped, w.key)
		default:
			return nil, nil
		}
		trial[i] = w
	}
	if len(set) == 0 {
		return nil, nil
	}
	return set, dropped
}

// with is the wish for another value of the annotation.
func (w wish) with(value string) wish {
	return wish{cause: w.cause, drop: func(p *v1.Pod) {
		if _, ok := p.Annotations[w.key]; ok {
			p.Annotations[w.key] = value
		}
	}}
}

// anyOf names steps of which one is enough.
func anyOf(steps []string) string {
	last := len(steps) - 1
	if last < 2 {
		return strings.Join(steps, ", or ")
	}
	return strings.Join(steps[:last], ", ") + ", or " + steps[last]
}

// neverNext are the steps where one thing is all that the cluster has too little of: to ask for less, and to
// add to the cluster.
var neverNext = map[Cause][2]string{
	FewCPUs:                            {"ask for less CPU", "add nodes that have more"},
	LowMemory:                          {"ask for less memory", "add nodes that have more"},
	NoDomain:                           {"let the gang be in a greater domain", "add nodes to one"},
	HostPort:                           {"leave the host port out", "add nodes"},
	KeptApart:                          {"leave the anti-affinity out", "add nodes"},
	causeOf(placement.FewSuitableGPUs): {"accept more models or less memory", "add nodes that have such GPUs"},
}

// lesserValues are values of an annotation to try, the most demanding first. Some may demand as much as the
// pods do.
func (s *scene) lesserValues(key string, needed []wish, shapes []*question) []string {
	switch podrequest.CanonicalKey(key) {
	case podrequest.TopologyPolicyKey:
		return []string{"restricted", "best-effort"}
	case podrequest.NUMAAffinityKey:
		return []string{"preferred"}
	case podrequest.MinLinkKey:
		return []string{"NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS"}
	case podrequest.MinBandwidthKey:
		return s.bandwidths(needed, shapes)
	}
	return nil
}

// bandwidths are the ring bandwidths that nodes would give the pods without some wishes, the greatest first.
func (s *scene) bandwidths(dropped []wish, shapes []*question) (out []string) {
	var all []float64
	for _, q := range shapes {
		pod := q.pod.DeepCopy()
		together(dropped).drop(pod)
		less, err := s.question(pod)
		if err != nil {
			continue
		}
		for _, n := range s.nodes {
			if set := n.set(less, s.Now); set != nil && set.BandwidthGBps > 0 {
				all = append(all, rounded(set.BandwidthGBps))
			}
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	for _, v := range slices.Compact(all) {
		out = append(out, strconv.FormatFloat(v, 'f', -1, 64)+"GB/s")
	}
	return out
}

// rounded is a bandwidth that is no greater, with at most one place.
func rounded(gbps float64) float64 { return math.Floor(10*gbps) / 10 }
