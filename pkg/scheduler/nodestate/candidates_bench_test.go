// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// BenchmarkCandidates makes one list among a thousand nodes, none of which changed since the last.
func BenchmarkCandidates(b *testing.B) {
	const nodes = 1000
	pods := map[string]func(*v1.Pod){
		"listed": func(*v1.Pod) {},
		"whole band": func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone"}}
		},
		"by node": func(p *v1.Pod) {
			*p = *schedtest.PodFrom(p).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").CPU("8").Memory("16Gi").Obj()
		},
	}
	for name, change := range pods {
		b.Run(name, func(b *testing.B) {
			s := newCachedState(b)
			for i := range nodes {
				s.add(fmt.Sprint("n", i), "dgx-h100")
			}
			list := s.list()
			pod := schedtest.Pod("pod").GPUs(2).Obj()
			change(pod)
			d, how := demandOf(b, pod), narrowing()
			how.Limit = 16
			if names, _ := s.PreSelector.Candidates(d, pod, how, s.framework, list); len(names) == 0 {
				b.Fatal("no list")
			}
			b.ReportAllocs()
			for b.Loop() {
				s.PreSelector.Candidates(d, pod, how, s.framework, list)
			}
		})
	}
}
