// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// lesser says what to do about the wishes without which there is room: a value of an annotation with which
// there is, the greatest of those that are tried, if it is one wish that has such a value.
func (s *scene) lesser(needed []wish, shapes []*question, fits func(wish) bool) string {
	if len(needed) == 1 && needed[0].key != "" {
		w := needed[0]
		for _, value := range s.lesserValues(w.key, shapes) {
			if fits(wish{cause: w.cause, drop: func(p *v1.Pod) {
				if _, ok := p.Annotations[w.key]; ok {
					p.Annotations[w.key] = value
				}
			}}) {
				return fmt.Sprintf("set %s to %s, with which there is room when no other pod runs, or add nodes that have more", w.key, value)
			}
		}
	}
	if next := neverNext[needed[0].cause]; next != "" && len(needed) == 1 {
		return next
	}
	return "ask for less of these: " + named(needed) + "; or add nodes that have it"
}

// neverNext says what to do where one thing is all that the cluster has too little of.
var neverNext = map[Cause]string{
	FewCPUs:                            "ask for less CPU, or add nodes that have more",
	LowMemory:                          "ask for less memory, or add nodes that have more",
	NoDomain:                           "let the gang be in a greater domain, or add nodes to one",
	HostPort:                           nextSteps[HostPort],
	KeptApart:                          nextSteps[KeptApart],
	causeOf(placement.FewOneModel):     "set nvtopo.dev/allow-mixed-models, run fewer members, or add nodes of one model",
	causeOf(placement.FewSuitableGPUs): "accept more models or less memory, or add nodes that have such GPUs",
}

// lesserValues are values of an annotation to try, the most demanding first. Some may demand as much as the
// pods do.
func (s *scene) lesserValues(key string, shapes []*question) []string {
	switch podrequest.CanonicalKey(key) {
	case podrequest.TopologyPolicyKey:
		return []string{"restricted", "best-effort"}
	case podrequest.NUMAAffinityKey:
		return []string{"preferred"}
	case podrequest.MinLinkKey:
		return []string{"NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS"}
	case podrequest.MinBandwidthKey:
		return s.bandwidths(key, shapes)
	}
	return nil
}

// bandwidths are the ring bandwidths that nodes would give the pods without the annotation, in GB/s, the
// greatest first.
func (s *scene) bandwidths(key string, shapes []*question) (out []string) {
	var all []float64
	for _, q := range shapes {
		pod := q.pod.DeepCopy()
		delete(pod.Annotations, key)
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
		out = append(out, strconv.FormatFloat(v, 'f', -1, 64))
	}
	return out
}

// rounded is a bandwidth that is no greater, with at most one place.
func rounded(gbps float64) float64 { return math.Floor(10*gbps) / 10 }
