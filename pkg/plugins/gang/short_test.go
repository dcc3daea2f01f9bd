// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestShortage: a gang without room reports the short resource if it is not devices, and the number of
// nodes concerned. It reported "cluster: 1 of 2" alone.
func TestShortage(t *testing.T) {
	t.Parallel()
	asks := func(name v1.ResourceName, amount string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			r := &pod.Spec.Containers[0].Resources
			r.Requests[name], r.Limits[name] = resource.MustParse(amount), resource.MustParse(amount)
		}
	}
	selects := func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"gpu-type": "h1000"} }
	tests := map[string]struct {
		nodes  int
		gpus   int // of each member
		change func(*v1.Pod)
		second func(*v1.Pod) // change of the second member; nil: the same
		other  func(*v1.Pod) // a pod that runs on the first node; nil: none
		cordon bool          // of the first node
		want   string
	}{
		"CPU":        {nodes: 1, gpus: 1, change: asks(v1.ResourceCPU, "50"), want: ": cluster: 1 of 2: too little cpu for one more like gang-0 on 1 node"},
		"memory":     {nodes: 1, gpus: 1, change: asks(v1.ResourceMemory, "300Gi"), want: ": cluster: 1 of 2: too little memory for one more like gang-0 on 1 node"},
		"GPUs alone": {nodes: 1, gpus: 8, change: asks(v1.ResourceCPU, "50"), want: ": cluster: 1 of 2"},
		"a host port": {
			nodes: 1, gpus: 2, change: func(pod *v1.Pod) {
				pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 8080, Protocol: v1.ProtocolTCP}}
			},
			want: ": cluster: 1 of 2: no second member with the host port of gang-0 on 1 node",
		},
		"an anti-affinity": {
			nodes: 1, gpus: 2, change: func(pod *v1.Pod) {
				pod.Labels = map[string]string{"job": "train"}
				pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
					TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}},
				}}}}
			},
			want: ": cluster: 1 of 2: no second member like gang-0, by its anti-affinity, on 1 node",
		},
		"the selector of one member": {
			nodes: 3, gpus: 2, second: selects, want: "the node selector or affinity of gang-1 is not met on more than 2 nodes",
		},
		"a member that has its place, beside one that has none": {
			nodes: 1, gpus: 1, change: asks(v1.ResourceCPU, "50"), second: selects, want: ": cluster: 1 of 2, because members ask for different things, and 1 of them has no place even without those that ask for something else: the node selector or affinity of gang-1 is not met on 1 node",
		},
		"a required level, which may be what is short": {
			nodes: 1, gpus: 1, change: func(pod *v1.Pod) {
				asks(v1.ResourceCPU, "50")(pod)
				pod.Annotations[gangrequest.RequiredKey] = "rack"
			}, want: ": rack: 1 of 2",
		},
		"a cordon is no reason where another node is left": {nodes: 2, gpus: 8, cordon: true, want: ": cluster: 1 of 2"},
		"a selector and a cordon": {
			nodes: 2, gpus: 8, cordon: true, change: func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: "node-0-0"} },
			want: ": cluster: 0 of 2: a cordon keeps gang-0 off on 1 node, the node selector or affinity of gang-0 is not met on 1 node",
		},
		"CPU that another pod has": {
			nodes: 2, gpus: 2, change: asks(v1.ResourceCPU, "70"), other: asks(v1.ResourceCPU, "20"),
			want: ": cluster: 1 of 2: too little cpu for one more like gang-0 on 2 nodes",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnv(t, tc.nodes)
			r.nodes[0].Spec.Unschedulable = tc.cordon
			if tc.other != nil {
				pod := schedtest.Pod("other").Scheduler(profileName).CPU("1").Node("node-0-0").Obj()
				tc.other(pod)
				r.place(r.create(pod))
			}
			i := 0
			gang := r.gangOf("gang", 2, tc.gpus, 0, func(pod *v1.Pod) {
				if tc.change != nil {
					tc.change(pod)
				}
				if i == 1 && tc.second != nil {
					tc.second(pod)
				}
				i++
			})
			r.known(gang[0])
			c := r.cycle(gang[0])
			if got := c.status.Message(); !strings.HasSuffix(got, tc.want) {
				t.Errorf("%q, want it to end with %q", got, tc.want)
			}
		})
	}
}
