// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// kinds are those with a definition, in any order.
var kinds = []string{
	v1alpha1.Kind, v1alpha1.ClusterTopologyKind, poolv1alpha1.ComputePoolKind, poolv1alpha1.ElasticJobKind,
	poolv1alpha1.PriceBookKind, poolv1alpha1.UsageRecordKind, poolv1alpha1.TenantAccountKind, poolv1alpha1.InvoiceKind,
	poolv1alpha1.UsageBatchKind, poolv1alpha1.RemoteGPUSessionKind,
}

// definitions are all that are shipped.
func definitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	own, err := manifests.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	pools, err := manifests.PoolCRDs()
	if err != nil {
		t.Fatal(err)
	}
	return append(own, pools...)
}

// definition is the shipped definition of a kind.
func definition(t *testing.T, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crds := definitions(t)
	i := slices.IndexFunc(crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Spec.Names.Kind == kind })
	if i < 0 {
		t.Fatalf("no definition of %s", kind)
	}
	return crds[i]
}

// internalCRD is the same as the API server sees it on create.
func internalCRD(t *testing.T, kind string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	crd := definition(t, kind)
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
		t.Fatalf("convert %s: %v", crd.Name, err)
	}
	internal.Status.StoredVersions = []string{internal.Spec.Versions[0].Name}
	return internal
}

// TestCRDValidation: the CRD is accepted by the API server. It runs the API server's own
// validation, which includes the estimated cost of the CEL rules, on the shipped definitions.
func TestCRDValidation(t *testing.T) {
	if n := len(definitions(t)); n != len(kinds) {
		t.Errorf("%d definitions, want %d", n, len(kinds))
	}
	for _, kind := range kinds {
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internalCRD(t, kind)) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// schemaOf is the schema of the one version.
func schemaOf(t *testing.T, kind string) *apiextensions.CustomResourceValidation {
	t.Helper()
	crd := internalCRD(t, kind)
	if crd.Spec.Validation != nil {
		return crd.Spec.Validation
	}
	return crd.Spec.Versions[0].Schema
}

// structuralSchema is the same in the form that rules are judged by.
func structuralSchema(t *testing.T, kind string) *structuralschema.Structural {
	t.Helper()
	structural, err := structuralschema.NewStructural(schemaOf(t, kind).OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return structural
}

// objectValidator returns what the API server runs on an object: the schema,
// the list keys and the CEL rules with their cost budgets.
func objectValidator(t *testing.T, kind string) func(obj map[string]any) field.ErrorList {
	t.Helper()
	props, structural := schemaOf(t, kind), structuralSchema(t, kind)
	schema, _, err := schemavalidation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	return func(obj map[string]any) field.ErrorList {
		errs := schemavalidation.ValidateCustomResource(nil, obj, schema)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, structural, obj)...)
		celErrs, _ := rules.Validate(t.Context(), nil, structural, obj, nil, celconfig.RuntimeCELCostBudget)
		return append(errs, celErrs...)
	}
}

// node returns a valid object with n GPUs, every pair linked, on two NUMA nodes.
func node(n int) map[string]any {
	gpus, rows := []any{}, []any{}
	for i := range n {
		gpus = append(gpus, map[string]any{
			"id": fmt.Sprintf("GPU-%d", i), "index": int64(i), "resource": "nvidia.com/gpu", "numaNode": int64(i % 2),
			"pciBusID": fmt.Sprintf("0000:%02x:00.0", i), "memory": "80Gi",
		})
		if i < n-1 {
			rows = append(rows, strings.TrimSuffix(strings.Repeat("NV18/SYS ", n-1-i), " "))
		}
	}
	kinds := []any{map[string]any{"name": "NV18/SYS", "class": "NVLink", "lanes": int64(18), "bandwidth": "450G", "pcie": "SYS"}}
	numa := []any{
		map[string]any{"id": int64(0), "cpus": "0-15,32-47", "distances": []any{int64(10), int64(21)}},
		map[string]any{"id": int64(1), "cpus": "16-31,48-63", "distances": []any{int64(21), int64(10)}},
	}
	return map[string]any{
		"apiVersion": "topology.nvtopo.dev/v1alpha1", "kind": "NodeGPUTopology", "metadata": map[string]any{"name": "n"},
		"spec": map[string]any{"nodeUID": "u", "gpus": gpus, "numaNodes": numa, "linkKinds": kinds, "linkRows": rows},
	}
}

// TestNodeCostLimits fails when the rules would refuse a
// valid object of the greatest allowed size for being too costly to check.
func TestNodeCostLimits(t *testing.T) {
	validate := objectValidator(t, v1alpha1.Kind)
	for _, n := range []int{0, 1, 8, 20} {
		for _, err := range validate(node(n)) {
			t.Errorf("%d GPUs: %v", n, err)
		}
	}
	for _, err := range validate(inRows(nvtopo.MaxGPUs)) {
		t.Errorf("%d GPUs with names and rows as long as they may be: %v", nvtopo.MaxGPUs, err)
	}
}

// TestMalformedObjects: malformed objects are refused by field.
func TestMalformedObjects(t *testing.T) {
	item := func(obj map[string]any, list string, i int) map[string]any {
		entry, _ := obj["spec"].(map[string]any)[list].([]any)[i].(map[string]any)
		return entry
	}
	tests := map[string]struct {
		breakIt   func(obj map[string]any)
		wantField string
	}{
		"no node UID":                     {func(o map[string]any) { delete(o["spec"].(map[string]any), "nodeUID") }, "spec.nodeUID"},
		"empty node UID":                  {func(o map[string]any) { o["spec"].(map[string]any)["nodeUID"] = "" }, "spec.nodeUID"},
		"a GPU with a blank in its id":    {func(o map[string]any) { item(o, "gpus", 1)["id"] = "GPU 1" }, "spec.gpus[1].id"},
		"two GPUs of one id":              {func(o map[string]any) { item(o, "gpus", 1)["id"] = "GPU-0" }, "spec.gpus"},
		"two GPUs of one index":           {func(o map[string]any) { item(o, "gpus", 1)["index"] = int64(0) }, "spec.gpus"},
		"a GPU on an unlisted NUMA node":  {func(o map[string]any) { item(o, "gpus", 2)["numaNode"] = int64(7) }, "spec.gpus"},
		"a bus id that is no bus id":      {func(o map[string]any) { item(o, "gpus", 2)["pciBusID"] = "7" }, "spec.gpus[2].pciBusID"},
		"CPUs that are no list":           {func(o map[string]any) { item(o, "numaNodes", 0)["cpus"] = "0-" }, "spec.numaNodes[0].cpus"},
		"a short row of distances":        {func(o map[string]any) { item(o, "numaNodes", 0)["distances"] = []any{int64(10)} }, "spec.numaNodes"},
		"a row too few":                   {func(o map[string]any) { o["spec"].(map[string]any)["linkRows"] = []any{"NV18/SYS NV18/SYS"} }, "spec.linkRows"},
		"no rows":                         {func(o map[string]any) { delete(o["spec"].(map[string]any), "linkRows") }, "spec.linkRows"},
		"an unknown link class":           {func(o map[string]any) { item(o, "linkKinds", 0)["class"] = "NV18" }, "spec.linkKinds[0].class"},
		"a bandwidth that is no quantity": {func(o map[string]any) { item(o, "linkKinds", 0)["bandwidth"] = "fast" }, "spec.linkKinds[0].bandwidth"},
		"an unknown topology policy": {func(o map[string]any) {
			o["status"] = map[string]any{"kubelet": map[string]any{"topologyManagerPolicy": "strict"}}
		}, "status.kubelet.topologyManagerPolicy"},
		"65 GPUs": {func(o map[string]any) { o["spec"] = node(65)["spec"] }, "spec.gpus"},
		"a network adapter with a level too few": {func(o map[string]any) {
			o["spec"].(map[string]any)["nics"] = []any{map[string]any{"name": "mlx5_0", "numaNode": int64(0), "distances": []any{"PIX"}}}
		}, "spec.nics"},
	}
	validate := objectValidator(t, v1alpha1.Kind)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := node(3)
			tc.breakIt(obj)
			errs := validate(obj)
			if len(errs) == 0 {
				t.Fatal("accepted")
			}
			if slices.ContainsFunc(errs, func(err *field.Error) bool { return err.Field == tc.wantField }) {
				return
			}
			t.Errorf("refused, but not at %s: %v", tc.wantField, errs)
		})
	}
}

// TestControlCharacters: no text of a node has a control character, upon which a terminal would act.
// Only messages may have lines.
func TestControlCharacters(t *testing.T) {
	status := func(field string, value any) func(o map[string]any) {
		return func(o map[string]any) { o["status"] = map[string]any{field: value} }
	}
	allocation := func(field string) func(text string) func(o map[string]any) {
		return func(text string) func(o map[string]any) {
			one := map[string]any{"podUID": "u", "container": "c", "resource": "nvidia.com/gpu", "gpus": []any{"GPU-0"}, "state": "confirmed", field: text}
			if field == "gpus" {
				one["gpus"] = []any{text}
			}
			return status("allocations", []any{one})
		}
	}
	fields := map[string]func(text string) func(o map[string]any){
		"spec.nodeUID": func(text string) func(o map[string]any) {
			return func(o map[string]any) { o["spec"].(map[string]any)["nodeUID"] = text }
		},
		"spec.bootID": func(text string) func(o map[string]any) {
			return func(o map[string]any) { o["spec"].(map[string]any)["bootID"] = text }
		},
		"spec.gpus[1].model": func(text string) func(o map[string]any) {
			return func(o map[string]any) { o["spec"].(map[string]any)["gpus"].([]any)[1].(map[string]any)["model"] = text }
		},
		"spec.nics[0].name": func(text string) func(o map[string]any) {
			return func(o map[string]any) {
				o["spec"].(map[string]any)["nics"] = []any{map[string]any{"name": text, "numaNode": int64(0)}}
			}
		},
		"status.gpuHealth[0].id": func(text string) func(o map[string]any) {
			return status("gpuHealth", []any{map[string]any{"id": text, "healthy": false}})
		},
		"status.gpuHealth[0].reason": func(text string) func(o map[string]any) {
			return status("gpuHealth", []any{map[string]any{"id": "GPU-0", "healthy": false, "reason": text}})
		},
		"status.summary.interconnect": func(text string) func(o map[string]any) {
			return status("summary", map[string]any{"gpus": int64(1), "healthy": int64(1), "numaNodes": int64(1), "interconnect": text})
		},
		"status.conditions[0].message": func(text string) func(o map[string]any) {
			return status("conditions", []any{map[string]any{
				"type": "Ready", "status": "True", "reason": "Read", "message": text, "lastTransitionTime": "2026-01-01T00:00:00Z",
			}})
		},
		"status.kubelet.unalignedResources[0]": func(text string) func(o map[string]any) {
			return status("kubelet", map[string]any{"topologyManagerPolicy": "none", "unalignedResources": []any{text}})
		},
		"status.allocations[0].podUID":    allocation("podUID"),
		"status.allocations[0].namespace": allocation("namespace"),
		"status.allocations[0].pod":       allocation("pod"),
		"status.allocations[0].container": allocation("container"),
		"status.allocations[0].resource":  allocation("resource"),
		"status.allocations[0].gpus[0]":   allocation("gpus"),
	}
	validate := objectValidator(t, v1alpha1.Kind)
	for where, with := range fields {
		t.Run(where, func(t *testing.T) {
			for text, want := range map[string]bool{
				"NVIDIA H100": true, "é™": true, "\u00a0": true, "a\x1b[2Jb": false, "a\u009b2Jb": false, "a\x00": false, "\x7f": false, "a\rb": false,
				"a\nb": where == "status.conditions[0].message", "a\tb": where == "status.conditions[0].message",
			} {
				obj := node(3)
				with(text)(obj)
				errs := validate(obj)
				if want && len(errs) > 0 {
					t.Errorf("%q is refused: %v", text, errs)
				}
				if at := func(err *field.Error) bool { return err.Field == where || err.Field+".message" == where }; !want && !slices.ContainsFunc(errs, at) {
					t.Errorf("%q is not refused there: %v", text, errs)
				}
			}
		})
	}
}
