// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// TestPriceBookUpgrade: a price book that was applied before prices had validFrom stays as it is under
// the new definition, is applied again without a price more or less, and gets a later price.
func TestPriceBookUpgrade(t *testing.T) {
	c := startCluster(t, devcluster.Config{})
	dyn, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	definitions := dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	text, err := os.ReadFile("../../testdata/skew/pools/pricebooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := definitions.Create(t.Context(), topologyObject(t, string(text)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	books := dyn.Resource(poolv1alpha1.PriceBookGVR)
	apply := func(ctx context.Context, prices string) error {
		o := topologyObject(t, `apiVersion: pool.nvtopo.dev/v1alpha1
kind: PriceBook
metadata: {name: default}
spec: {currency: USD, prices: [`+prices+`]}`)
		_, err := books.Apply(ctx, "default", o, metav1.ApplyOptions{FieldManager: "an-operator"})
		return err
	}
	const h100, gpu = `{resource: nvidia.com/gpu, model: H100, pricePerHour: "4"}`, `{resource: nvidia.com/gpu, pricePerHour: "2"}`
	const later = `{resource: nvidia.com/gpu, pricePerHour: "3", validFrom: "2026-12-01T00:00:00Z"}`
	testkit.Eventually(t, waitLimit, "the kind is served as it was", func(ctx context.Context) (bool, string) {
		err := apply(ctx, h100+", "+gpu)
		return err == nil, fmt.Sprint(err)
	})
	stored := func(want ...string) {
		t.Helper()
		book, err := books.Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range book.Object["spec"].(map[string]any)["prices"].([]any) {
			price := p.(map[string]any)
			got = append(got, fmt.Sprintf("%v %v %v: %v", price["resource"], price["model"], price["validFrom"], price["pricePerHour"]))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	stored("nvidia.com/gpu H100 <nil>: 4", "nvidia.com/gpu  <nil>: 2")

	if err := c.ApplyManifests(t.Context(), manifests.Pools); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, waitLimit, "a price may have validFrom", func(ctx context.Context) (bool, string) {
		book, err := books.Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		first, _ := book.Object["spec"].(map[string]any)["prices"].([]any)[0].(map[string]any)
		return first["validFrom"] == "", fmt.Sprint(first)
	})
	for _, step := range []struct {
		prices string
		want   []string
	}{
		{h100 + ", " + gpu, []string{"nvidia.com/gpu H100 : 4", "nvidia.com/gpu  : 2"}},
		{h100 + ", " + gpu + ", " + later, []string{"nvidia.com/gpu H100 : 4", "nvidia.com/gpu  : 2", "nvidia.com/gpu  2026-12-01T00:00:00Z: 3"}},
		{gpu + ", " + later, []string{"nvidia.com/gpu  : 2", "nvidia.com/gpu  2026-12-01T00:00:00Z: 3"}},
		{gpu, []string{"nvidia.com/gpu  : 2"}},
	} {
		if err := apply(t.Context(), step.prices); err != nil {
			t.Fatalf("apply %s: %v", step.prices, err)
		}
		stored(step.want...)
	}
}
