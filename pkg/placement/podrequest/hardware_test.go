// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

// TestHardwarePreference: of a preferred node affinity only the terms about hardware labels alone are
// used.
func TestHardwarePreference(t *testing.T) {
	is := func(key, value string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}
	}
	term := func(weight int32, expressions ...v1.NodeSelectorRequirement) v1.PreferredSchedulingTerm {
		return v1.PreferredSchedulingTerm{Weight: weight, Preference: v1.NodeSelectorTerm{MatchExpressions: expressions}}
	}
	const product, zone = "nvidia.com/gpu.product", "topology.kubernetes.io/zone"
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{product: "L40S", zone: "a"}}}
	field := term(5)
	field.Preference.MatchFields = []v1.NodeSelectorRequirement{is(metav1.ObjectNameField, "n")}
	cases := map[string]struct {
		terms []v1.PreferredSchedulingTerm
		want  int64
	}{
		"no affinity":                        {},
		"a product":                          {terms: []v1.PreferredSchedulingTerm{term(100, is(product, "L40S"))}, want: 100},
		"another product":                    {terms: []v1.PreferredSchedulingTerm{term(100, is(product, "H200"))}},
		"a zone":                             {terms: []v1.PreferredSchedulingTerm{term(100, is(zone, "a"))}},
		"a product in a zone":                {terms: []v1.PreferredSchedulingTerm{term(100, is(product, "L40S"), is(zone, "a"))}},
		"a product, and a zone beside it":    {terms: []v1.PreferredSchedulingTerm{term(7, is(product, "L40S")), term(9, is(zone, "a"))}, want: 7},
		"weights of several terms are added": {terms: []v1.PreferredSchedulingTerm{term(7, is(product, "L40S")), term(3, is(product, "L40S"))}, want: 10},
		"a node by its name":                 {terms: []v1.PreferredSchedulingTerm{field}},
		"nothing at all":                     {terms: []v1.PreferredSchedulingTerm{term(3)}},
	}
	got, want := map[string]int64{}, map[string]int64{}
	for name, tc := range cases {
		pod := testobj.Pod("p").GPUs(1).Obj()
		if tc.terms != nil {
			pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: tc.terms}}
		}
		opt := testOptions()
		opt.HardwareLabels = []string{product}
		r, err := Parse(pod, opt)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got[name], want[name] = r.Prefers(node), tc.want
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want, +got):\n%s", d)
	}
}
