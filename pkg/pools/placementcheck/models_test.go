// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const productLabel = "nvidia.com/gpu.product"

// TestModelChoice: the models that a gang names are a set to choose one from, preferably the one that
// its pods prefer, if that has room; GPUs of unknown model are of one model together, and a gang with
// GPUs is on no node with untracked devices.
func TestModelChoice(t *testing.T) {
	products := func(w *kueue.Workload, values ...string) *kueue.Workload {
		w.Spec.PodSets[0].Template.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: productLabel, Operator: v1.NodeSelectorOpIn, Values: values}}}},
		}}}
		return w
	}
	prefers := func(w *kueue.Workload, key, value string) *kueue.Workload {
		w.Spec.PodSets[0].Template.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 1, Preference: v1.NodeSelectorTerm{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}},
			}}},
		}}
		return w
	}
	byCount := func(e *testEnv, kind string) {
		e.Topologies = slices.DeleteFunc(e.Topologies, func(t topologyv1alpha1.NodeGPUTopology) bool { return strings.HasPrefix(t.Name, kind) })
	}
	unknown := func(e *testEnv, kinds ...string) {
		for i := range e.Topologies {
			if kind, _, _ := strings.Cut(e.Topologies[i].Name, "_"); slices.Contains(kinds, kind) {
				for n := range e.Topologies[i].Spec.GPUs {
					e.Topologies[i].Spec.GPUs[n].Model = ""
				}
			}
		}
	}
	tests := map[string]struct {
		build func(*testEnv) // beside two machines each of H200, L40S and A100
		job   *kueue.Workload
		want  string // the kinds of machine that it is on, or why it is on none
	}{
		"nothing is named": {job: job("train", 2, 8, gangOf("g", 2)), want: "hgx-h200"},
		"two models":       {job: job("train", 2, 8, gangOf("g", 2, podrequest.GPUModelKey, "L40S,A100")), want: "dgx-a100"},
		"two models, and the faster has too little":  {job: job("train", 2, 8, gangOf("g", 2, podrequest.GPUModelKey, "L40S,A100")), build: func(e *testEnv) { e.pod("other", "dgx-a100_0", nil, 0) }, want: "l40s-8"},
		"two models, and both have too little":       {job: job("train", 3, 8, gangOf("g", 3, podrequest.GPUModelKey, "L40S,A100")), want: "cluster: 2 of 3 on NVIDIA-A100-SXM4-40GB, 2 on NVIDIA-L40S; allow-mixed-models would fit"},
		"two models, and both together":              {job: job("train", 4, 8, gangOf("g", 4, podrequest.GPUModelKey, "L40S,A100", gangrequest.MixedModelsKey, "true")), want: "dgx-a100 l40s-8"},
		"an affinity that names two products":        {job: products(job("train", 2, 8, gangOf("g", 2)), "NVIDIA-L40S", "NVIDIA-A100-SXM4-40GB"), want: "dgx-a100"},
		"an affinity, and both products are too few": {job: products(job("train", 3, 8, gangOf("g", 3)), "NVIDIA-L40S", "NVIDIA-A100-SXM4-40GB"), want: "cluster: 2 of 3 on NVIDIA-A100-SXM4-40GB, 2 on NVIDIA-L40S; allow-mixed-models would fit"},
		"models that are not known are one":          {job: job("train", 4, 8, gangOf("g", 4)), build: func(e *testEnv) { unknown(e, "l40s-8", "dgx-a100") }, want: "dgx-a100 l40s-8"},
		"and apart from one that is known":           {job: job("train", 5, 8, gangOf("g", 5)), build: func(e *testEnv) { unknown(e, "l40s-8", "dgx-a100") }, want: "cluster: 4 of 5 on an unknown model, 2 on NVIDIA-H200; allow-mixed-models would fit"},
		"no model is known":                          {job: job("train", 6, 8, gangOf("g", 6)), build: func(e *testEnv) { unknown(e, "l40s-8", "dgx-a100", "hgx-h200") }, want: "dgx-a100 hgx-h200 l40s-8"},
		"a product is preferred":                     {job: prefers(job("train", 2, 8, gangOf("g", 2)), productLabel, "NVIDIA-L40S"), want: "l40s-8"},
		"something else is preferred, which comes after the links": {
			job: prefers(job("train", 2, 8, gangOf("g", 2)), v1.LabelTopologyZone, "l40s-8"), want: "hgx-h200",
		},
		"nodes by number have no place":   {job: job("train", 2, 8, gangOf("g", 2)), build: func(e *testEnv) { byCount(e, "hgx-h200") }, want: "dgx-a100"},
		"whatever their label says":       {job: products(job("train", 2, 8, gangOf("g", 2)), "NVIDIA-H200"), build: func(e *testEnv) { byCount(e, "hgx-h200") }, want: "cluster: 0 of 2"},
		"nor for pods that want no graph": {job: products(job("train", 2, 8, gangOf("g", 2, podrequest.TopologyPolicyKey, "none")), "NVIDIA-H200"), build: func(e *testEnv) { byCount(e, "hgx-h200") }, want: "cluster: 0 of 2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t)
			for kind, product := range map[string]string{"hgx-h200": "NVIDIA-H200", "l40s-8": "NVIDIA-L40S", "dgx-a100": "NVIDIA-A100-SXM4-40GB"} {
				for i := range 2 {
					e.node(fmt.Sprintf("%s_%d", kind, i), kind, map[string]string{productLabel: product, v1.LabelTopologyZone: kind})
				}
			}
			if tc.build != nil {
				tc.build(e)
			}
			d := Decide(NewSnapshot(&e.World, NewGraphs()), tc.job)
			got := d.Message
			if d.Verdict == Ready {
				on := map[string]bool{}
				for _, n := range d.after.nodes {
					if kind, _, _ := strings.Cut(n.object.Name, "_"); len(n.given) > 0 {
						on[kind] = true
					}
				}
				got = strings.Join(slices.Sorted(maps.Keys(on)), " ")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want,+got)\n%s", diff)
			}
		})
	}
}
