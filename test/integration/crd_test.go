// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// TestMalformedTopologies creates broken copies of a real machine's object; each error has to name the
// field.
func TestMalformedTopologies(t *testing.T) { //nolint:tparallel // its steps share one cluster
	c := startCluster(t, devcluster.Config{})
	if err := c.InstallManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	spec := devcluster.NodeSpec{Name: "n", Machine: "dgx1-v100"}
	g, err := spec.Graph()
	if err != nil {
		t.Fatal(err)
	}
	good := v1alpha1.FromGraph("n", string(gpuResource), g)
	good.Spec.NodeUID = "uid"

	entry := func(o map[string]any, list string, i int) map[string]any {
		items, _, err := unstructured.NestedSlice(o, "spec", list)
		if err != nil || i >= len(items) {
			t.Fatalf("spec.%s has no entry %d: %v", list, i, err)
		}
		// NestedSlice copies; the caller changes the object itself.
		return o["spec"].(map[string]any)[list].([]any)[i].(map[string]any)
	}
	tests := map[string]struct {
		spoil func(o map[string]any)
		want  string // in the message
	}{
		"as the exporter writes it":       {spoil: func(map[string]any) {}},
		"no nodeUID":                      {func(o map[string]any) { delete(o["spec"].(map[string]any), "nodeUID") }, "spec.nodeUID"},
		"a GPU without an id":             {func(o map[string]any) { entry(o, "gpus", 0)["id"] = "" }, "spec.gpus[0].id"},
		"a GPU id with blanks":            {func(o map[string]any) { entry(o, "gpus", 1)["id"] = "GPU 1" }, "spec.gpus[1].id"},
		"two GPUs of one id":              {func(o map[string]any) { entry(o, "gpus", 1)["id"] = entry(o, "gpus", 0)["id"] }, "spec.gpus: Invalid value"},
		"two GPUs of one index":           {func(o map[string]any) { entry(o, "gpus", 1)["index"] = int64(0) }, "spec.gpus"},
		"a GPU on a NUMA node nobody has": {func(o map[string]any) { entry(o, "gpus", 2)["numaNode"] = int64(7) }, "numaNode"},
		"a bus id in another form":        {func(o map[string]any) { entry(o, "gpus", 3)["pciBusID"] = "GPU0" }, "spec.gpus[3].pciBusID"},
		"a link class nobody knows":       {func(o map[string]any) { entry(o, "linkKinds", 0)["class"] = "FAST" }, "spec.linkKinds[0].class"},
		"a row too few": {func(o map[string]any) {
			o["spec"].(map[string]any)["linkRows"] = o["spec"].(map[string]any)["linkRows"].([]any)[:6]
		}, "spec.linkRows"},
		"no rows":                           {func(o map[string]any) { delete(o["spec"].(map[string]any), "linkRows") }, "spec.linkRows"},
		"a list of links, as it was before": {func(o map[string]any) { o["spec"].(map[string]any)["links"] = []any{} }, `unknown field "spec.links"`},
		"more lanes than any GPU has":       {func(o map[string]any) { entry(o, "linkKinds", 0)["lanes"] = int64(65) }, "spec.linkKinds[0].lanes"},
		"a bandwidth that is no quantity":   {func(o map[string]any) { entry(o, "linkKinds", 0)["bandwidth"] = "fast" }, "spec.linkKinds[0].bandwidth"},
		// One object with any of these made every list and watch of all nodes fail, or take minutes.
		"a bandwidth that cannot be read":  {func(o map[string]any) { entry(o, "linkKinds", 0)["bandwidth"] = "1e1.5" }, "spec.linkKinds[0].bandwidth"},
		"a bandwidth that takes minutes":   {func(o map[string]any) { entry(o, "linkKinds", 0)["bandwidth"] = "1e-100000000" }, "spec.linkKinds[0].bandwidth"},
		"a bandwidth that is not finite":   {func(o map[string]any) { entry(o, "linkKinds", 0)["bandwidth"] = "1e400" }, "spec.linkKinds[0].bandwidth"},
		"a bandwidth of a megabyte":        {func(o map[string]any) { entry(o, "linkKinds", 0)["bandwidth"] = strings.Repeat("9", 1<<20) }, "spec.linkKinds[0].bandwidth"},
		"a negative bandwidth":             {func(o map[string]any) { entry(o, "linkKinds", 0)["bandwidth"] = "-0" }, "spec.linkKinds[0].bandwidth"},
		"a model of half a megabyte":       {func(o map[string]any) { entry(o, "gpus", 0)["model"] = strings.Repeat("x", 1<<19) }, "spec.gpus[0].model"},
		"an id that turns the text around": {func(o map[string]any) { entry(o, "gpus", 0)["id"] = "\u202eGPU" }, "spec.gpus[0].id"},
		"more NUMA nodes than we can tell apart": {func(o map[string]any) {
			o["spec"].(map[string]any)["numaNodes"] = slices.Repeat([]any{map[string]any{"id": int64(1)}}, 65)
		}, "spec.numaNodes"},
		"10 000 kinds of links": {func(o map[string]any) {
			o["spec"].(map[string]any)["linkKinds"] = slices.Repeat([]any{entry(o, "linkKinds", 0)}, 10_000)
		}, "spec.linkKinds"},
		"a CPU list that is none":             {func(o map[string]any) { entry(o, "numaNodes", 0)["cpus"] = "0..3" }, "spec.numaNodes[0].cpus"},
		"a distance below that to oneself":    {func(o map[string]any) { entry(o, "numaNodes", 0)["distances"] = []any{int64(1), int64(20)} }, "spec.numaNodes[0].distances[0]"},
		"a field nobody knows, strictly read": {func(o map[string]any) { o["spec"].(map[string]any)["gpu"] = "x" }, "spec.gpu"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(good)
			if err != nil {
				t.Fatal(err)
			}
			tc.spoil(o)
			_, err = dyn.Resource(v1alpha1.GroupVersionResource).Create(t.Context(), &unstructured.Unstructured{Object: o},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want == "":
			case err == nil || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
				t.Errorf("got %v, want a refusal that names %s", err, tc.want)
			case !strings.Contains(err.Error(), tc.want):
				t.Errorf("refused with %v, want %s named", err, tc.want)
			default:
				t.Log(err)
			}
		})
	}
}
