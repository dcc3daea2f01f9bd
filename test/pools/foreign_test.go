// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"maps"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// foreignObjects are a flavor and a Cohort of the pool's name that belong to an operator without pools.
const foreignObjects = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: POOL}
spec: {nodeLabels: {example.com/rack: r1}, tolerations: [{key: example.com/t, operator: Exists}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: POOL}
`

// TestObjectsOfOthers checks that a pool does not touch a flavor or Cohort with its name but without its
// label: it reports them, can be deleted, and adopts them once they have the label.
func TestObjectsOfOthers(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.yaml(t, foreignObjects)
	readyIs := func(what, reason string, words ...string) {
		t.Helper()
		s.waitPool(t, what, func(status *poolv1alpha1.ComputePoolStatus) bool {
			c := meta.FindStatusCondition(status.Conditions, poolv1alpha1.ConditionReady)
			if c == nil || c.Reason != reason {
				return false
			}
			for _, w := range words {
				if !strings.Contains(c.Message, strings.ReplaceAll(w, "POOL", s.name)) {
					return false
				}
			}
			return true
		})
	}
	untouched := func() (*kueue.ResourceFlavor, *kueue.Cohort) {
		t.Helper()
		flavor, cohort := &kueue.ResourceFlavor{}, &kueue.Cohort{}
		s.get(t, flavor, "", s.name)
		s.get(t, cohort, "", s.name)
		if len(flavor.Labels)+len(cohort.Labels) > 0 || !maps.Equal(flavor.Spec.NodeLabels, map[string]string{"example.com/rack": "r1"}) {
			t.Errorf("the objects of others are %+v and %+v", flavor, cohort)
		}
		return flavor, cohort
	}
	s.computePool(t, oneNodePool)
	readyIs("the pool names the flavor", "NotOfThisPool", "ResourceFlavor POOL is there without the label pool.nvtopo.dev/managed=POOL")
	untouched()
	pool := &poolv1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	s.remove(t, pool)
	s.waitGone(t, pool)
	flavor, cohort := untouched()

	s.computePool(t, oneNodePool)
	readyIs("the pool names the flavor again", "NotOfThisPool", "ResourceFlavor POOL")
	ours := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.LabelManaged+`":"`+s.name+`"}}}`))
	for _, o := range []client.Object{flavor, cohort} {
		if err := s.Patch(t.Context(), o, ours); err != nil {
			t.Fatal(err)
		}
	}
	s.ready(t)
	s.get(t, flavor, "", s.name)
	if len(flavor.Spec.Tolerations) != 1 || flavor.Spec.NodeLabels["example.com/rack"] != "" {
		t.Errorf("the flavor that was taken over is %+v, want the pool's nodes and its own toleration", flavor.Spec)
	}

	// An operator's queue that uses the pool's flavor keeps it, which the pool's deletion reports.
	s.yaml(t, strings.ReplaceAll(strings.Split(oneQueue, "---")[1], "metadata: {name: POOL}", "metadata: {name: POOL-own}"))
	own := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-own"}}
	s.remove(t, pool)
	readyIs("the pool says what it waits for", "KueueHoldsObjects", "ResourceFlavor POOL (kept by kueue.x-k8s.io/resource-in-use)")
	s.remove(t, own)
	s.waitGone(t, pool)

	// The label is removed from the pool's own flavor: the pool reports it, and can still be deleted.
	s.computePool(t, oneNodePool)
	s.ready(t)
	none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))
	if err := s.Patch(t.Context(), &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, none); err != nil {
		t.Fatal(err)
	}
	readyIs("the pool misses its flavor", "NotOfThisPool", "ResourceFlavor POOL is there without the label")
	s.remove(t, pool)
	s.waitGone(t, pool)
	s.get(t, flavor, "", s.name)
	s.remove(t, flavor)
}
