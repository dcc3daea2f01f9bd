// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// Every field of these types is one of Kueue's, under the same name and of the same JSON type. A
// field that Kueue has not would be dropped by the API server without a word.
func TestKueueFields(t *testing.T) {
	t.Parallel()
	_, config := testkit.Kueue(t)
	fields := 0
	for resource, of := range map[string]any{
		"resourceflavors": ResourceFlavor{}, "cohorts": Cohort{}, "clusterqueues": ClusterQueue{}, "localqueues": LocalQueue{},
		"workloads": Workload{}, "workloadpriorityclasses": WorkloadPriorityClass{}, "admissionchecks": AdmissionCheck{},
	} {
		schema := readSchema(t, filepath.Join(config, "components", "crd", "bases", GroupName+"_"+resource+".yaml"))
		fields += compare(t, resource, reflect.TypeOf(of), schema)
	}
	if fields < 80 {
		t.Errorf("%d fields were compared: too few to be all", fields)
	}
}

// readSchema is the schema of our version of a kind.
func readSchema(t *testing.T, path string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile(path) //nolint:gosec // a file of the build
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == SchemeGroupVersion.Version && v.Served
	})
	if i < 0 {
		t.Fatalf("%s does not serve %s", path, SchemeGroupVersion)
	}
	return crd.Spec.Versions[i].Schema.OpenAPIV3Schema
}

// compare looks for the fields of a type in a schema, and returns how many it found. Types of
// other packages are Kubernetes' own in both.
func compare(t *testing.T, where string, of reflect.Type, schema *apiextensionsv1.JSONSchemaProps) int {
	t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case of.Kind() == reflect.Slice:
		if schema.Items == nil {
			t.Errorf("%s: Kueue has type %s, we a list", where, schema.Type)
			return 0
		}
		return compare(t, where+"[]", of.Elem(), schema.Items.Schema)
	case of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[Cohort]().PkgPath():
		if want := jsonType(of); want != "" && want != schema.Type {
			t.Errorf("%s: Kueue has type %s, we %s", where, schema.Type, want)
		}
		return 0
	}
	fields := 0
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "metadata" {
			continue // TypeMeta, ObjectMeta
		}
		inner, ok := schema.Properties[name]
		if !ok {
			t.Errorf("%s.%s: Kueue has no such field", where, name)
			continue
		}
		fields += 1 + compare(t, where+"."+name, f.Type, &inner)
	}
	return fields
}

// jsonType is that of a plain type; empty for those that write themselves.
func jsonType(of reflect.Type) string {
	switch of.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int32, reflect.Int64:
		return "integer"
	case reflect.Map:
		return "object"
	default:
		return ""
	}
}
