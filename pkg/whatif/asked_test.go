// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		text    string
		want    []string // pods
		wantErr string
	}{
		"a pod, in the given namespace": {
			text: "# a comment\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n", want: []string{"here/p"},
		},
		"a Job's pods that run at first": {
			text: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: a}\nspec: {parallelism: 5, completions: 2, template: {spec: {containers: [{name: c, image: i}]}}}\n",
			want: []string{"a/j-0", "a/j-1"},
		},
		"a List": {
			text: `{"apiVersion":"v1","kind":"List","metadata":{},"items":[{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"p-"},"spec":{"containers":[{"name":"c"}]}}]}`,
			want: []string{"here/p-what-if"},
		},
		"a PodGroup with its pod": {
			text: "apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 1}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n",
			want: []string{"here/p"},
		},
		"nothing":                   {text: "", wantErr: "there is no pod"},
		"a field that is not known": {text: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containerz: []}\n", wantErr: `document 1: Pod p: unknown field "spec.containerz"`},
		"another kind":              {text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n", wantErr: `kind "Deployment"`},
		"no name":                   {text: "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c}]}\n", wantErr: "Pod: metadata.name: missing"},
		"no container":              {text: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", wantErr: "pod here/p: spec.containers: missing"},
		"a pod that has a node":     {text: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeName: n1, containers: [{name: c}]}\n", wantErr: "pod here/p: spec.nodeName"},
		"a Job of too many pods":    {text: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 1001, template: {spec: {containers: [{name: c}]}}}\n", wantErr: "job j: spec.parallelism"},
		"Jobs of too many pods together": {
			text:    strings.Repeat("---\napiVersion: batch/v1\nkind: Job\nmetadata: {generateName: j}\nspec: {parallelism: 1000, template: {spec: {containers: [{name: c}]}}}\n", 2),
			wantErr: "document 2: job jwhat-if: spec.parallelism 1000: 2000 pods: want at most 1000 in all",
		},
		"a Job whose template is long": {
			text: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 1000, template: {spec: {containers: [{name: c, image: " +
				strings.Repeat("x", 1<<20) + "}]}}}\n",
			wantErr: "job j: spec.parallelism 1000: all that is asked for takes more than 128 MiB of memory",
		},
		"a Job whose template is short and large": {
			text: `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"parallelism":1000,"template":{"spec":{"containers":[` +
				strings.Repeat("{},", 999) + `{}]}}}}`,
			wantErr: "more than 128 MiB of memory",
		},
		"an object of too many values": {
			text:    `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[` + strings.Repeat("null,", maxValues) + `null]}}`,
			wantErr: "Pod p: it has more than 65536 values",
		},
		"a document of too many values": {
			text: "apiVersion: v1\nkind: Pod\nspec: {containers: [" + strings.Repeat("a,", maxParts) + "]}\n", wantErr: "document 1: 524291 commas and lines: want at most 524288",
		},
		"YAML that stands for more than it is": {
			text:    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {name: &c long, image: *c}\n",
			wantErr: "document 1: line 6: *c: an alias is not read",
		},
		"a List in a List": {
			text:    `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[]}]}`,
			wantErr: "document 1: items[0].kind: a List is no item of a List",
		},
		"a pod twice": {
			text:    strings.Repeat("---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n", 2),
			wantErr: "pod here/p is there twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ReadAsked([]byte(tc.text), "here")
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("got %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, pod := range a.Pods {
				got = append(got, pod.Namespace+"/"+pod.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			text, err := a.Encode()
			if err != nil {
				t.Fatal(err)
			}
			again, err := ReadAsked(text, "elsewhere")
			if err != nil {
				t.Fatal(err)
			}
			if len(again.Pods) != len(a.Pods) || len(again.Groups) != len(a.Groups) {
				t.Errorf("written and read it has %d pods and %d groups", len(again.Pods), len(again.Groups))
			}
		})
	}
}
