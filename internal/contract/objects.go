// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Objects are the objects of an installation, by kind, namespace and name.
type Objects map[string]map[string]any

// hashed matches the scheduler's ConfigMap with the hash that kustomize appends to its name. The text
// that is hashed is in the file.
var hashed = regexp.MustCompile(`(nvtopo-scheduler-config)-[a-z0-9]{10}\b`)

// Add adds an object.
func (o Objects) Add(object map[string]any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode an object: %w", err)
	}
	var own map[string]any
	if err := json.Unmarshal(hashed.ReplaceAll(text, []byte("$1")), &own); err != nil {
		return fmt.Errorf("decode an object: %w", err)
	}
	meta, _ := own["metadata"].(map[string]any)
	namespace, _ := meta["namespace"].(string)
	key := fmt.Sprintf("%v %s/%v", own["kind"], namespace, meta["name"])
	if o[key] != nil {
		return fmt.Errorf("two objects are %s", key)
	}
	o[key] = own
	return nil
}

// Text writes all objects, one line a field.
func (o Objects) Text() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(o)) {
		fmt.Fprintf(&b, "\n# %s\n%s\n", key, strings.Join(Fields(withoutSchema(o[key])), "\n"))
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// TextAgainst writes how the objects differ from base: the names of missing objects, the fields that
// differ in objects that both have, and new objects in full. Equal objects are left out.
func (o Objects) TextAgainst(base Objects) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(base)) {
		if o[key] == nil {
			fmt.Fprintf(&b, "# without %s\n", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		fields := Fields(withoutSchema(o[key]))
		if base[key] == nil {
			fmt.Fprintf(&b, "# also %s\n%s\n", key, strings.Join(fields, "\n"))
			continue
		}
		if changes := Changes(Fields(withoutSchema(base[key])), fields); len(changes) > 0 {
			fmt.Fprintf(&b, "# differs: %s\n%s\n", key, strings.Join(changes, "\n"))
		}
	}
	return b.String()
}

// withoutSchema returns a CustomResourceDefinition without its schema, which is in crds.txt, and any
// other object as it is.
func withoutSchema(object map[string]any) map[string]any {
	if object["kind"] != "CustomResourceDefinition" {
		return object
	}
	text, _ := json.Marshal(object) // it was decoded from JSON
	var own map[string]any
	_ = json.Unmarshal(text, &own)
	spec, _ := own["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok {
			v["schema"] = "as in crds.txt"
		}
	}
	return own
}

// Fields writes a value as one line for each field: its path, and its value as JSON without quotes.
// Elements of a list that have a name are identified by it; longer text takes several lines.
func Fields(v any) []string { return fields(nil, "", v) }

func fields(out []string, path string, v any) []string {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return append(out, path+": {}")
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			step := key
			if strings.ContainsAny(key, "./") {
				step = "[" + key + "]"
			} else if path != "" {
				step = "." + key
			}
			out = fields(out, path+step, v[key])
		}
		return out
	case []any:
		return list(out, path, v)
	case string:
		if !strings.Contains(v, "\n") {
			return append(out, path+": "+v)
		}
		out = append(out, path+": |")
		for line := range strings.SplitSeq(strings.TrimSuffix(v, "\n"), "\n") {
			out = append(out, strings.TrimRight("  | "+line, " "))
		}
		return out
	default:
		text, _ := json.Marshal(v) // it was decoded from JSON
		return append(out, path+": "+string(text))
	}
}

func list(out []string, path string, v []any) []string {
	var scalars []string
	for _, e := range v {
		switch e.(type) {
		case map[string]any, []any:
		default:
			text := fmt.Sprint(e)
			if text == "" {
				text = `""` // for example the core group of APIs
			}
			scalars = append(scalars, text)
		}
	}
	if text := strings.Join(scalars, ", "); len(scalars) == len(v) && len(text) <= 120 && !strings.ContainsAny(text, "\n") {
		return append(out, path+": ["+text+"]")
	}
	named := map[string]bool{}
	for _, e := range v {
		if name := nameOf(e); name != "" {
			named[name] = true
		}
	}
	for i, e := range v {
		step := strconv.Itoa(i)
		switch name := nameOf(e); {
		case name != "" && len(named) == len(v):
			step = name
		case len(scalars) == len(v):
			step = ""
		}
		out = fields(out, path+"["+step+"]", e)
	}
	return out
}

func nameOf(element any) string {
	m, _ := element.(map[string]any)
	for _, key := range []string{"name", "alert", "record"} {
		if name, ok := m[key].(string); ok {
			return name
		}
	}
	return ""
}
