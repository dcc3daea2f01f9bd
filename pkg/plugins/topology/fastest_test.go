// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestFastestRing: the status of a pod that is refused for its requested bandwidth has the greatest
// possible one.
func TestFastestRing(t *testing.T) {
	const cube, bridged, hopper = "dgx1-v100", "a100-pcie-4-bridged", "dgx-h100"
	fast := func(gpus int, gbps string) *v1.Pod {
		return asks("p", 5, gpus).Annotation(podrequest.MinBandwidthKey, gbps).Obj()
	}
	tests := map[string]struct {
		machines []string
		arrange  func(s *testEnv)
		pod      *v1.Pod
		alone    bool // no DefaultPreemption in the profile
		want     string
	}{
		"more than any node has": {
			machines: []string{bridged, cube}, pod: fast(2, "400000"),
			want: "nvtopo.dev/min-bandwidth asks 400000 GB/s, and 2 GPUs of an empty node have at most 300 GB/s (node-0); preemption: 0/2 nodes",
		},
		"of equal nodes the first by name": {
			machines: []string{hopper, hopper, hopper}, pod: fast(8, "450.5"),
			want: "nvtopo.dev/min-bandwidth asks 450.5 GB/s, and 8 GPUs of an empty node have at most 450 GB/s (node-0); preemption: ",
		},
		"what is held counts as well": {
			machines: []string{bridged}, pod: fast(2, "200"),
			arrange: func(s *testEnv) { s.tenant("a", 0, 9, 1, 0); s.tenant("b", 0, 9, 1, 2) },
			want:    "nvtopo.dev/min-bandwidth asks 200 GB/s, and 2 GPUs of an empty node have at most 300 GB/s (node-0); preemption: ",
		},
		"only of what the pod's other demands allow": {
			machines: []string{cube}, pod: asks("p", 5, 4).Annotation(podrequest.MinBandwidthKey, "60").Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj(),
			want: "nvtopo.dev/min-bandwidth asks 60 GB/s, and 4 GPUs of an empty node have at most ",
		},
		"a node that the pod may not run on does not count": {
			machines: []string{cube, hopper}, pod: fast(2, "60"),
			arrange: func(s *testEnv) {
				s.nodes[1].Status.Allocatable[v1.ResourceMemory] = *s.nodes[1].Status.Allocatable.Cpu()
			},
			want: "nvtopo.dev/min-bandwidth asks 60 GB/s, and 2 GPUs of an empty node have at most 50 GB/s (node-0); ",
		},
		"a profile without preemption": {
			machines: []string{bridged}, pod: fast(2, "400"), alone: true,
			want: "nvtopo.dev/min-bandwidth asks 400 GB/s, and 2 GPUs of an empty node have at most 300 GB/s (node-0)",
		},
		"a pod that asks for no bandwidth is not told": {
			machines: []string{bridged}, pod: linkedPair("p", 5).Obj(),
			arrange: func(s *testEnv) { s.tenant("a", 0, 9, 1, 0); s.tenant("b", 0, 9, 1, 2) },
			want:    "preemption: ",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			others := []string{defaultpreemption.Name}
			if tc.alone {
				others = nil
			}
			s := newTestEnvWith(t, others, tc.machines...)
			if tc.arrange != nil {
				tc.arrange(s)
			}
			s.show()
			s.known([]*v1.Pod{tc.pod})
			if _, _, status := s.postFilter(tc.pod); !strings.HasPrefix(status.Message(), tc.want) {
				t.Errorf("%v %q, want %q", status.Code(), status.Message(), tc.want)
			}
		})
	}
}

// TestFastestRingStable: the text is the same before and after a pod comes, so that refusals can be
// counted by it.
func TestFastestRingStable(t *testing.T) {
	s := newTestEnv(t, "a100-pcie-4-bridged")
	pod := asks("p", 5, 2).Annotation(podrequest.MinBandwidthKey, "400").Obj()
	s.known([]*v1.Pod{pod})
	var said []string
	for range 2 {
		s.show()
		_, _, status := s.postFilter(pod)
		text, _, _ := strings.Cut(status.Message(), ";")
		said = append(said, text)
		s.tenant("a", 0, 9, 1, 0)
	}
	if said[0] != said[1] || !strings.Contains(said[0], "300 GB/s") {
		t.Errorf("%q, then %q", said[0], said[1])
	}
}
