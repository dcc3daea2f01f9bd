// SPDX-License-Identifier: Apache-2.0

package schemaskew

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
)

// undeclared is how the API server ends the line of each field that its schema does not have.
const undeclared = ": field not declared in schema"

// maxFields bounds how many fields are left out: more are no matter of one release.
const maxFields = 64

// Applier applies objects and remembers what it has left out, to say it once. The
// zero value is usable.
type Applier struct {
	mu   sync.Mutex
	said string
}

// Apply calls apply with the object, and once more without the fields that it was
// refused for as undeclared; before that it tells leaving, if set, which they are, by
// their path without list keys ("status.gpuHealth.since"). The object is changed.
func (a *Applier) Apply(ctx context.Context, u *unstructured.Unstructured,
	apply func(*unstructured.Unstructured) (*unstructured.Unstructured, error),
	leaving func(u *unstructured.Unstructured, fields []string),
) (*unstructured.Unstructured, error) {
	got, err := apply(u)
	if err == nil {
		return got, nil
	}
	fields := Undeclared(err.Error())
	if len(fields) == 0 || len(fields) > maxFields {
		return nil, err
	}
	if leaving != nil {
		leaving(u, fields)
	}
	for _, f := range fields {
		remove(u.Object, strings.Split(f, "."))
	}
	a.say(ctx, u, fields)
	return apply(u)
}

func (a *Applier) say(ctx context.Context, u *unstructured.Unstructured, fields []string) {
	text := strings.Join(fields, ", ")
	a.mu.Lock()
	again := a.said == text
	a.said = text
	a.mu.Unlock()
	if !again {
		klog.FromContext(ctx).Info("The API server's CRD is of an earlier release and has not all fields; apply the new one", "kind", u.GetKind(), "name", u.GetName(), "leftOut", text)
	}
}

// Undeclared returns the fields that an error of server-side apply names as missing
// from the schema, each once and in order.
func Undeclared(message string) []string {
	var out []string
	for line := range strings.Lines(message) {
		path, found := strings.CutSuffix(strings.TrimSpace(line), undeclared)
		if !found {
			continue
		}
		// The first line has other words before the path.
		if i := strings.LastIndex(path, " ."); i >= 0 && !strings.HasPrefix(path, ".") {
			path = path[i+1:]
		}
		if field, ok := withoutKeys(path); ok {
			out = append(out, field)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// withoutKeys turns `.spec.gpus[id="a.b"].model` into "spec.gpus.model". It is false
// for what is no path of named fields.
func withoutKeys(path string) (string, bool) {
	var b strings.Builder
	inKey, inText := false, false
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case inText && c == '\\':
			i++
		case inKey && c == '"':
			inText = !inText
		case inText:
		case c == '[':
			inKey = true
		case c == ']':
			inKey = false
		case !inKey:
			b.WriteByte(c)
		}
	}
	field, ok := strings.CutPrefix(b.String(), ".")
	return field, ok && !inKey && !inText && named(field)
}

// named reports whether every part of a dotted path has a name.
func named(field string) bool {
	return !strings.ContainsAny(field, " \t:") && !slices.Contains(strings.Split(field, "."), "")
}

// remove drops a field from an object and, below lists, from all of their entries.
func remove(v any, path []string) {
	switch v := v.(type) {
	case []any:
		for _, entry := range v {
			remove(entry, path)
		}
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
			return
		}
		remove(v[path[0]], path[1:])
	}
}
