// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// previousCRD is the definition of the previous release.
const previousCRD = "../testdata/skew/level-1/crd.yaml"

// accepted are the changes that refuse what the previous release accepted, each with
// the reason why no program of that release writes such a thing. The API server
// lets what is stored already stay as it is (validation ratcheting).
var accepted = merged(narrowerQuantities(), atomicLists(), rulesOfNewFields(), cheaperRules(), narrowerLists(), withoutControls())

func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

// atomicLists are lists of one writer each, whose entries the API server no longer tells
// apart: it then keeps no account of who owns which field of which. Programs of both
// releases write them whole, under one name each. What their keys refused, two entries
// with one, a rule refuses.
func atomicLists() map[string]string {
	out := map[string]string{}
	for field, l := range map[string]struct{ keys, rule string }{
		"spec.gpus":             {"id", "g, {g.id: i}"},
		"spec.numaNodes":        {"id", "n, {n.id: i}"},
		"spec.links":            {"a,b", ""}, // in cheaperRules
		"spec.nics":             {"name", "n, {n.name: i}"},
		"status.gpuHealth":      {"id", "h, {h.id: i}"},
		"status.allocations":    {"podUID,container,resource", "a, {a.podUID + ' ' + a.container + ' ' + a.resource: i}"},
		"status.kubelet.memory": {"numaNode", "m, {m.numaNode: i}"},
	} {
		path := "v1alpha1." + field
		out[path+` list type: was "map" and is "atomic"`] = "it has one writer, who writes it whole"
		out[fmt.Sprintf("%s list keys: was %q and is %q", path, l.keys, "")] = "the rule is in their place"
		if l.rule != "" {
			out[fmt.Sprintf("%s: new rule size(self.transformMapEntry(i, %s)) == size(self)", path, l.rule)] = "it refuses what the keys refused"
		}
	}
	return out
}

// rulesOfNewFields say nothing of an object without those fields.
func rulesOfNewFields() map[string]string {
	return map[string]string{
		"v1alpha1.spec: new rule self.numaNodes.all(n, !has(n.threadsPerCore) || !has(n.siblings) || size(n.siblings) == 0)":    "threadsPerCore is new",
		"v1alpha1.spec: new rule !has(self.linkRows) || size(self.links) == 0":                                                  "linkRows is new",
		"v1alpha1.spec: new rule !has(self.linkRows) || size(self.linkRows) == 0 || size(self.linkRows) == size(self.gpus) - 1": "linkRows is new",
	}
}

// cheaperRules refuse what others refused, in fewer steps.
func cheaperRules() map[string]string {
	out := map[string]string{}
	for _, rule := range []string{
		"spec: new rule [self.gpus.transformMapEntry(i, g, {g.index: i})].all(known, self.links.all(l, l.a in known && l.b in known))",
		"spec: new rule [self.numaNodes.map(n, n.id) + [-1]].all(known, self.gpus.all(g, g.numaNode in known))",
		"spec.gpus: new rule size(self.transformMapEntry(i, g, {g.index: i})) == size(self)",
		"spec.links: new rule self.transformMapEntry(i, l, {l.a * 256 + l.b: i}).all(pair, pair / 256 < pair % 256)",
	} {
		out["v1alpha1."+rule] = "the same in fewer steps"
	}
	return out
}

// narrowerLists are bounds above what any machine of the catalogue has, and what the programs
// of the previous release write on it: each request to an object has the API server judge all
// of it.
func narrowerLists() map[string]string {
	const (
		machines   = "no machine of the catalogue needs more"
		containers = "its agent writes more only on a node with more than 512 GPU containers, or as many shares of GPUs; docs/upgrade.md names it"
		lists      = "its agent writes more only where hundreds of containers are confined to CPUs that are numbered by turns; docs/upgrade.md names it"
	)
	out := map[string]string{}
	for change, why := range map[string]string{
		"spec.links maxItems: is 190 now":                                                                     machines,
		"spec.numaNodes[].distances maxItems: is 36 now":                                                      machines,
		"spec.numaNodes[].siblings maxItems: is 512 now":                                                      machines,
		"spec.numaNodes: new rule self.map(n, has(n.siblings) ? size(n.siblings) : 0).sum() <= 512":           machines,
		"spec.nics: new rule self.map(n, has(n.distances) ? size(n.distances) : 0).sum() <= 512":              machines,
		"status.allocations maxItems: is 512 now":                                                             containers,
		"status.allocations: new rule self.map(a, size(a.gpus)).sum() <= 512":                                 containers,
		"status.allocations: new rule self.map(a, has(a.cpus) ? size(a.cpus) : 0).sum() <= 32768":             lists,
		"status.conditions: new rule self.all(c, size(c.message) <= 2048)":                                    "its programs cut their messages at 1024 bytes",
		"status.kubelet.cpuManagerOptions: new rule self.all(k, size(k) <= 128 && size(self[k]) <= 128)":      "kubelet's options have up to 32 characters, and their values are true, false or a number",
		"status.kubelet.topologyManagerOptions: new rule self.all(k, size(k) <= 128 && size(self[k]) <= 128)": "kubelet's options have up to 32 characters, and their values are true, false or a number",
		"status.kubelet.memory: new rule self.map(m, has(m.cells) ? size(m.cells) : 0).sum() <= 1296":         machines,
	} {
		out["v1alpha1."+change] = why
	}
	return out
}

// withoutControls are patterns of texts that nodes write. What is stored with control characters
// stays, and in an atomic list as long as the list does not change.
func withoutControls() map[string]string {
	out := map[string]string{
		`v1alpha1.status.conditions[]: new rule !self.message.matches(r'[\x00-\x08\x0b-\x1f\x7f-\x9f]')`: "messages have control characters only where a driver's error has them, and then but line feeds",
	}
	for _, f := range []string{
		"spec.nodeUID", "spec.bootID", "spec.gpus[].model", "spec.nics[].name", "status.gpuHealth[].id", "status.gpuHealth[].reason", "status.summary.interconnect",
		"status.kubelet.unalignedResources[]", "status.allocations[].podUID", "status.allocations[].namespace", "status.allocations[].pod",
		"status.allocations[].container", "status.allocations[].resource", "status.allocations[].gpus[]",
	} {
		out[fmt.Sprintf("v1alpha1.%s pattern: was %q and is %q", f, "", `^[^\x00-\x1f\x7f-\x9f]*$`)] = "names of hardware, of Kubernetes and of faults have none"
	}
	return out
}

// narrowerQuantities are the patterns of scripts/quantities.sh. The programs write
// whole numbers of an int64 with a suffix at most, as Quantity prints them; what is
// refused now could not be read, or only in minutes.
func narrowerQuantities() map[string]string {
	out := map[string]string{}
	for _, field := range []string{
		"spec.gpus[].memory", "spec.links[].bandwidth", "spec.numaNodes[].memory", "status.kubelet.memory[].allocatable", "status.kubelet.memory[].free",
	} {
		out[fmt.Sprintf("v1alpha1.%s pattern: was %q and is %q", field,
			`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`,
			`^[0-9]{1,19}(\.[0-9]{1,9})?(m|k|[KMGTPE]i|[MGTPE]|[eE]\+?[0-9]{1,2})?$`)] = "no program writes another quantity"
	}
	return out
}

// TestCRDEvolution: with the new definition the programs of the previous release
// can write all that they write, and with the old one those of this release all
// but what is new.
func TestCRDEvolution(t *testing.T) {
	data, err := os.ReadFile(previousCRD)
	if err != nil {
		t.Fatal(err)
	}
	old := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, old); err != nil {
		t.Fatal(err)
	}
	found := incompatible(old, definition(t, v1alpha1.Kind))
	for _, change := range found {
		if accepted[change] == "" {
			t.Errorf("%s\n(see docs/upgrade.md; if it is meant, accepted[] takes it with its reason)", change)
		}
	}
	for change := range accepted {
		if !slices.Contains(found, change) {
			t.Errorf("accepted, but not there: %s", change)
		}
	}
}

// incompatible lists what a definition refuses, drops or demands that its
// predecessor did not.
func incompatible(old, now *apiextensionsv1.CustomResourceDefinition) []string {
	var d difference
	d.fixed("names.plural", old.Spec.Names.Plural, now.Spec.Names.Plural)
	d.fixed("names.kind", old.Spec.Names.Kind, now.Spec.Names.Kind)
	d.fixed("scope", string(old.Spec.Scope), string(now.Spec.Scope))
	d.fixed("group", old.Spec.Group, now.Spec.Group)
	for _, v := range old.Spec.Versions {
		i := slices.IndexFunc(now.Spec.Versions, func(o apiextensionsv1.CustomResourceDefinitionVersion) bool { return o.Name == v.Name })
		if i < 0 || v.Served && !now.Spec.Versions[i].Served {
			d.add("version "+v.Name, "is not served any more")
			continue
		}
		// A version that is stored must be one that the previous release serves, or a
		// roll-back could not read what was written since.
		if v.Storage && !now.Spec.Versions[i].Storage {
			d.add("version "+v.Name, "is not stored any more")
		}
		if v.Subresources != nil && (now.Spec.Versions[i].Subresources == nil || v.Subresources.Status != nil && now.Spec.Versions[i].Subresources.Status == nil) {
			d.add("version "+v.Name, "has lost a subresource")
		}
		d.schema(v.Name, v.Schema.OpenAPIV3Schema, now.Spec.Versions[i].Schema.OpenAPIV3Schema)
	}
	slices.Sort(d.found)
	return d.found
}

type difference struct{ found []string }

func (d *difference) add(path, format string, args ...any) {
	d.found = append(d.found, path+": "+fmt.Sprintf(format, args...))
}

func (d *difference) fixed(path, old, now string) {
	if old != now {
		d.add(path, "was %q and is %q", old, now)
	}
}

func (d *difference) schema(path string, old, now *apiextensionsv1.JSONSchemaProps) {
	d.fixed(path+" type", old.Type, now.Type)
	d.fixed(path+" format", old.Format, now.Format)
	d.fixed(path+" list type", value(old.XListType), value(now.XListType))
	d.fixed(path+" list keys", strings.Join(old.XListMapKeys, ","), strings.Join(now.XListMapKeys, ","))
	d.fixed(path+" map type", value(old.XMapType), value(now.XMapType))
	d.limits(path, old, now)
	d.values(path, old, now)
	for _, field := range now.Required {
		if !slices.Contains(old.Required, field) {
			d.add(path, "%s is required now", field)
		}
	}
	for _, rule := range now.XValidations {
		if !slices.ContainsFunc(old.XValidations, func(o apiextensionsv1.ValidationRule) bool { return o.Rule == rule.Rule }) {
			d.add(path, "new rule %s", rule.Rule)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Properties)) {
		was := old.Properties[name]
		is, ok := now.Properties[name]
		if !ok {
			d.add(path, "%s is gone", name)
			continue
		}
		d.schema(path+"."+name, &was, &is)
	}
	if old.Items != nil && now.Items != nil {
		d.schema(path+"[]", old.Items.Schema, now.Items.Schema)
	}
	if old.AdditionalProperties != nil && old.AdditionalProperties.Schema != nil {
		if now.AdditionalProperties == nil || now.AdditionalProperties.Schema == nil {
			d.add(path, "takes no free keys any more")
			return
		}
		d.schema(path+"{}", old.AdditionalProperties.Schema, now.AdditionalProperties.Schema)
	}
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// limits reports bounds that are new or narrower.
func (d *difference) limits(path string, old, now *apiextensionsv1.JSONSchemaProps) {
	upper(d, path+" maximum", old.Maximum, now.Maximum)
	upper(d, path+" maxLength", old.MaxLength, now.MaxLength)
	upper(d, path+" maxItems", old.MaxItems, now.MaxItems)
	upper(d, path+" maxProperties", old.MaxProperties, now.MaxProperties)
	lower(d, path+" minimum", old.Minimum, now.Minimum)
	lower(d, path+" minLength", old.MinLength, now.MinLength)
	lower(d, path+" minItems", old.MinItems, now.MinItems)
	lower(d, path+" minProperties", old.MinProperties, now.MinProperties)
	if now.Pattern != "" && now.Pattern != old.Pattern {
		d.add(path+" pattern", "was %q and is %q", old.Pattern, now.Pattern)
	}
}

func upper[N int64 | float64](d *difference, what string, old, now *N) {
	if now != nil && (old == nil || *now < *old) {
		d.add(what, "is %v now", *now)
	}
}

func lower[N int64 | float64](d *difference, what string, old, now *N) {
	if now != nil && (old == nil || *now > *old) {
		d.add(what, "is %v now", *now)
	}
}

// values reports values that are no longer allowed, and a default that is another.
func (d *difference) values(path string, old, now *apiextensionsv1.JSONSchemaProps) {
	if len(old.Enum) == 0 && len(now.Enum) > 0 {
		d.add(path, "only some values are allowed now")
	}
	for _, v := range old.Enum {
		if len(now.Enum) > 0 && !slices.ContainsFunc(now.Enum, func(o apiextensionsv1.JSON) bool { return string(o.Raw) == string(v.Raw) }) {
			d.add(path, "the value %s is not allowed any more", v.Raw)
		}
	}
	raw := func(v *apiextensionsv1.JSON) string {
		if v == nil {
			return ""
		}
		return string(v.Raw)
	}
	d.fixed(path+" default", raw(old.Default), raw(now.Default))
}

// TestIncompatibleChanges plants each kind of change.
func TestIncompatibleChanges(t *testing.T) {
	spec := func(crd *apiextensionsv1.CustomResourceDefinition) map[string]apiextensionsv1.JSONSchemaProps {
		return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	}
	// link changes one field of spec.links[].
	link := func(crd *apiextensionsv1.CustomResourceDefinition, field string, change func(p *apiextensionsv1.JSONSchemaProps)) {
		props := spec(crd)["links"].Items.Schema.Properties
		p := props[field]
		change(&p)
		props[field] = p
	}
	tests := map[string]struct {
		change func(crd *apiextensionsv1.CustomResourceDefinition)
		want   []string
	}{
		"nothing": {change: func(*apiextensionsv1.CustomResourceDefinition) {}},
		"a new optional field is compatible": {change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			spec(crd)["links"].Items.Schema.Properties["errors"] = apiextensionsv1.JSONSchemaProps{Type: "integer", Maximum: new(3.0)}
		}},
		"a new value and a wider limit are compatible": {change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			link(crd, "class", func(p *apiextensionsv1.JSONSchemaProps) {
				p.Enum = append(p.Enum, apiextensionsv1.JSON{Raw: []byte(`"UALink"`)})
			})
			link(crd, "lanes", func(p *apiextensionsv1.JSONSchemaProps) { p.Maximum = new(128.0) })
		}},
		"a field is removed": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) { delete(spec(crd), "bootID") },
			want:   []string{"v1alpha1.spec: bootID is gone"},
		},
		"a field is required": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) {
				s := spec(crd)["links"].Items.Schema
				s.Required = append(s.Required, "pcie")
			},
			want: []string{"v1alpha1.spec.links[]: pcie is required now"},
		},
		"a value is removed": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) {
				link(crd, "class", func(p *apiextensionsv1.JSONSchemaProps) { p.Enum = p.Enum[1:] })
			},
			want: []string{`v1alpha1.spec.links[].class: the value "NVLink" is not allowed any more`},
		},
		"a limit is narrower, another is new": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) {
				link(crd, "lanes", func(p *apiextensionsv1.JSONSchemaProps) { p.Maximum = new(32.0) })
				link(crd, "pcie", func(p *apiextensionsv1.JSONSchemaProps) { p.MinLength = new(int64(1)) })
			},
			want: []string{"v1alpha1.spec.links[].lanes maximum: is 32 now", "v1alpha1.spec.links[].pcie minLength: is 1 now"},
		},
		"a type is another": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) {
				link(crd, "switched", func(p *apiextensionsv1.JSONSchemaProps) { p.Type = "string" })
			},
			want: []string{`v1alpha1.spec.links[].switched type: was "boolean" and is "string"`},
		},
		"a list has another key": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) {
				status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
				conditions := status["conditions"]
				conditions.XListMapKeys = []string{"reason"}
				status["conditions"] = conditions
			},
			want: []string{`v1alpha1.status.conditions list keys: was "type" and is "reason"`},
		},
		"a list has no keys any more": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) {
				status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
				conditions := status["conditions"]
				conditions.XListType, conditions.XListMapKeys = new("atomic"), nil
				status["conditions"] = conditions
			},
			want: []string{
				`v1alpha1.status.conditions list keys: was "type" and is ""`, `v1alpha1.status.conditions list type: was "map" and is "atomic"`,
			},
		},
		"the stored version is another": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Storage = false },
			want:   []string{"version v1alpha1: is not stored any more"},
		},
		"the version is not served": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Served = false },
			want:   []string{"version v1alpha1: is not served any more"},
		},
		"a rule is new": {
			change: func(crd *apiextensionsv1.CustomResourceDefinition) {
				s := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
				p := s.Properties["spec"]
				p.XValidations = append(p.XValidations, apiextensionsv1.ValidationRule{Rule: "size(self.gpus) > 0"})
				s.Properties["spec"] = p
			},
			want: []string{"v1alpha1.spec: new rule size(self.gpus) > 0"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			now := definition(t, v1alpha1.Kind)
			changed := now.DeepCopy()
			tc.change(changed)
			if got := incompatible(now, changed); !slices.Equal(got, tc.want) {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPreviousReleaseObjects: objects of the previous release are valid. Whoever writes a part of
// an object that programs of the previous release have written is not refused for the rest of it.
func TestPreviousReleaseObjects(t *testing.T) {
	validate := objectValidator(t, v1alpha1.Kind)
	for _, file := range []string{"topologies.yaml", "topologies-realnode.yaml"} {
		data, err := os.ReadFile("../testdata/skew/level-1/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Items []map[string]any `json:"items"`
		}
		if data, err = yaml.YAMLToJSON(data); err != nil {
			t.Fatal(err)
		}
		if err := utiljson.Unmarshal(data, &list); err != nil { // whole numbers stay whole
			t.Fatal(err)
		}
		if len(list.Items) == 0 {
			t.Errorf("%s has no objects", file)
		}
		for _, obj := range list.Items {
			for _, err := range validate(obj) {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
