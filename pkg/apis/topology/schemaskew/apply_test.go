// SPDX-License-Identifier: Apache-2.0

package schemaskew

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const oneField = `failed to create typed patch object (/n1; topology.nvtopo.dev/v1alpha1, Kind=NodeGPUTopology): .status.summary.degraded: field not declared in schema`

const several = `failed to create typed patch object (/n1; topology.nvtopo.dev/v1alpha1, Kind=NodeGPUTopology): errors:
  .status.gpuHealth[id="GPU-a.b]\"x"].since: field not declared in schema
  .status.gpuHealth[id="GPU-1"].since: field not declared in schema
  .spec.links[a=0,b=1].errors: field not declared in schema`

func TestUndeclared(t *testing.T) {
	tests := map[string]struct {
		message string
		want    []string
	}{
		"one field":                       {oneField, []string{"status.summary.degraded"}},
		"several, some in many entries":   {several, []string{"spec.links.errors", "status.gpuHealth.since"}},
		"another error":                   {"conflict", nil},
		"an error about something it has": {".spec.gpus: duplicate entries", nil},
		"no path":                         {"field: field not declared in schema", nil},
		"a key that does not end":         {`.spec.gpus[id="x: field not declared in schema`, nil},
		"an empty name":                   {".spec..x: field not declared in schema", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Undeclared(tc.message)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestApplyUndeclared: Apply leaves out what is not declared.
func TestApplyUndeclared(t *testing.T) {
	object := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"links": []any{map[string]any{"a": int64(0), "errors": int64(7)}, map[string]any{"a": int64(1)}}},
			"status": map[string]any{"gpuHealth": []any{
				map[string]any{"id": "GPU-1", "since": "now"}, map[string]any{"id": "GPU-2", "since": "then"},
			}},
		}}
	}
	for name, tc := range map[string]struct {
		errs  []error // of one attempt after the other
		want  map[string]any
		calls int
		fails bool
	}{
		"nothing is refused": {errs: []error{nil}, want: object().Object, calls: 1},
		"two fields are": {errs: []error{errors.New(several), nil}, calls: 2, want: map[string]any{
			"spec":   map[string]any{"links": []any{map[string]any{"a": int64(0)}, map[string]any{"a": int64(1)}}},
			"status": map[string]any{"gpuHealth": []any{map[string]any{"id": "GPU-1", "told": true}, map[string]any{"id": "GPU-2"}}},
		}},
		"another error is the caller's":      {errs: []error{errors.New("conflict")}, calls: 1, fails: true},
		"it is tried again once and no more": {errs: []error{errors.New(several), errors.New(several)}, calls: 2, fails: true},
		"too many fields":                    {errs: []error{errors.New(manyFields())}, calls: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			var a Applier
			got, err := a.Apply(t.Context(), object(), func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				calls++
				return u, tc.errs[calls-1]
			}, func(u *unstructured.Unstructured, fields []string) {
				health := u.Object["status"].(map[string]any)["gpuHealth"].([]any)
				health[0].(map[string]any)["told"] = len(fields) == 2
			})
			if calls != tc.calls || (err != nil) != tc.fails {
				t.Fatalf("%d calls and %v, want %d, an error: %v", calls, err, tc.calls, tc.fails)
			}
			if err == nil {
				if diff := cmp.Diff(tc.want, got.Object); diff != "" {
					t.Errorf("applied (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func manyFields() string {
	var b strings.Builder
	for i := range maxFields + 1 {
		b.WriteString(".spec.f" + strings.Repeat("x", i) + undeclared + "\n")
	}
	return b.String()
}

func FuzzUndeclared(f *testing.F) {
	f.Add(oneField)
	f.Add(several)
	f.Fuzz(func(t *testing.T, message string) {
		for _, field := range Undeclared(message) {
			if field == "" || strings.HasPrefix(field, ".") || strings.Contains(field, "..") || strings.ContainsAny(field, " \n") {
				t.Errorf("%q names a field %q", message, field)
			}
			// Whatever it names, nothing else may go.
			obj := map[string]any{"spec": map[string]any{"gpus": []any{map[string]any{"id": "x"}, "text"}}, "kind": "k"}
			remove(obj, strings.Split(field, "."))
			if _, ok := obj["kind"]; !ok && field != "kind" {
				t.Errorf("%q removed kind", field)
			}
		}
	})
}
