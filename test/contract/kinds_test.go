// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/nvtopo/nvtopo/internal/contract"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/config"
)

// TestKinds compares every kind: its names, versions and columns, and every field with its type,
// default, bounds and rules.
func TestKinds(t *testing.T) {
	var files []string
	for _, pattern := range []string{"crd/*nvtopo.dev_*.yaml", "pools/*nvtopo.dev_*.yaml"} {
		found, err := filepath.Glob(filepath.Join(testkit.Repository(), "manifests", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 9 {
		t.Errorf("only %d definitions were found", len(files))
	}
	var b strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			fmt.Fprintf(&b, "# %s %s/%s, %s, served %t, stored %t\n", crd.Spec.Names.Kind, crd.Spec.Group, v.Name, crd.Spec.Scope, v.Served, v.Storage)
			fmt.Fprintf(&b, "names: %s\n", compact(t, crd.Spec.Names))
			if v.Subresources != nil {
				fmt.Fprintf(&b, "subresources: %s\n", compact(t, v.Subresources))
			}
			for _, c := range v.AdditionalPrinterColumns {
				fmt.Fprintf(&b, "column %s: %s\n", c.Name, compact(t, c))
			}
			schema(t, &b, "", v.Schema.OpenAPIV3Schema, false)
		}
	}
	contract.Compare(t, "crds.txt", b.String())
}

// schema writes a field and those below it, without descriptions, which docs/reference has.
func schema(t *testing.T, b *strings.Builder, path string, s *apiextensionsv1.JSONSchemaProps, required bool) {
	t.Helper()
	own := s.DeepCopy()
	own.Description, own.Properties, own.Items, own.AdditionalProperties = "", nil, nil, nil
	own.Required, own.XValidations, own.Type = nil, nil, ""
	line := path + " " + s.Type
	if required {
		line += " required"
	}
	if rest := compact(t, own); rest != "{}" {
		line += " " + rest
	}
	fmt.Fprintln(b, strings.TrimSpace(line))
	for _, v := range s.XValidations {
		fmt.Fprintf(b, "  rule of %s: %s\n", strings.TrimSpace(path+" "), compact(t, v))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		schema(t, b, path+"."+name, &p, slices.Contains(s.Required, name))
	}
	if s.Items != nil && s.Items.Schema != nil {
		schema(t, b, path+"[]", s.Items.Schema, false)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		schema(t, b, path+".*", s.AdditionalProperties.Schema, false)
	}
}

func compact(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// TestArguments compares the arguments of the plugins: every field with its type, and the defaults of an
// empty object.
func TestArguments(t *testing.T) {
	topology, numa, gang := &config.TopologyAwareArgs{}, &config.NUMAAffinityArgs{}, &config.GangPlacementArgs{}
	config.SetDefaults_TopologyAwareArgs(topology)
	config.SetDefaults_NUMAAffinityArgs(numa)
	config.SetDefaults_GangPlacementArgs(gang)
	var b strings.Builder
	for _, p := range []struct {
		name string
		args any
	}{{config.TopologyAwareName, topology}, {config.NUMAAffinityName, numa}, {config.GangPlacementName, gang}} {
		fmt.Fprintf(&b, "# fields of %s\n", p.name)
		arguments(&b, "", reflect.TypeOf(p.args).Elem())
		text, err := yaml.Marshal(p.args)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# defaults of %s\n%s", p.name, text)
	}
	contract.Compare(t, "plugin-arguments.txt", b.String())
}

func arguments(b *strings.Builder, path string, typ reflect.Type) {
	for f := range typ.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" || strings.Contains(options, "inline") {
			if f.Type.Name() != "TypeMeta" {
				arguments(b, path, f.Type)
			}
			continue
		}
		text := strings.ReplaceAll(f.Type.String(), "config.", "")
		if options != "" {
			text += " " + options
		}
		fmt.Fprintf(b, "%s%s: %s\n", path, name, text)
		below := f.Type
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice || below.Kind() == reflect.Map {
			below = below.Elem()
		}
		if below.Kind() == reflect.Struct && strings.HasSuffix(below.PkgPath(), "pkg/apis/config") {
			arguments(b, path+name+".", below)
		}
	}
}
