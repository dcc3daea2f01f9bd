// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func aPool(name string, selector map[string]string) *v1alpha1.ComputePool {
	return &v1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ComputePoolSpec{NodeSelector: selector}}
}

// nameOf returns the name of a pool; empty if it is nil.
func nameOf(p *v1alpha1.ComputePool) string {
	if p == nil {
		return ""
	}
	return p.Name
}

func TestPoolOf(t *testing.T) {
	train := map[string]string{"use": "train"}
	pools := []*v1alpha1.ComputePool{
		aPool("plain", nil), aPool("z", train), aPool("y", train), aPool("a", map[string]string{"use": "train", "rack": "1"}), aPool("unset", map[string]string{"use": ""}),
	}
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"by the label of pools":                      {map[string]string{v1alpha1.LabelPool: "plain"}, "plain"},
		"by the first of two with one selector":      {train, "y"},
		"by the first of three, which asks for more": {map[string]string{"use": "train", "rack": "1", "zone": "b"}, "a"},
		"a label without a value":                    {map[string]string{"use": ""}, "unset"},
		"another value":                              {map[string]string{"use": "serve"}, ""},
		"the name of a pool with a selector":         {map[string]string{v1alpha1.LabelPool: "z"}, ""},
		"half of a selector":                         {map[string]string{"rack": "1"}, ""},
		"a node without labels":                      {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nameOf(PoolOf(tc.labels, pools)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := PoolOf(train, nil); got != nil {
		t.Errorf("of no pools got %s", got.Name)
	}
}

// TestPoolOfRandom: Kubernetes' own selectors, and the names in order, give the same result for
// any pools and nodes, in any order of the pools.
func TestPoolOfRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := func() map[string]string {
		out := map[string]string{}
		for range r.IntN(4) {
			out[string('a'+rune(r.IntN(3)))] = []string{"", "1", "2"}[r.IntN(3)]
		}
		return out
	}
	for range 2000 {
		node := some()
		if r.IntN(2) == 0 {
			node[v1alpha1.LabelPool] = fmt.Sprintf("pool-%d", r.IntN(6))
		}
		var pools []*v1alpha1.ComputePool
		want := ""
		for i := range r.IntN(6) {
			p := aPool(fmt.Sprintf("pool-%d", i), some())
			pools = append(pools, p)
			selector := labels.Set(p.Spec.NodeSelector)
			if len(selector) == 0 {
				selector = labels.Set{v1alpha1.LabelPool: p.Name}
			}
			if want == "" && labels.SelectorFromSet(selector).Matches(labels.Set(node)) {
				want = p.Name
			}
		}
		for range 3 {
			r.Shuffle(len(pools), func(i, k int) { pools[i], pools[k] = pools[k], pools[i] })
			got := PoolOf(node, pools)
			if nameOf(got) != want || got != nil && (!slices.Contains(pools, got) || !Selects(got, node)) {
				t.Fatalf("node %v of %+v: got %q, want %q", node, pools, nameOf(got), want)
			}
		}
	}
}
