// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"another kind":              {text: "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\n", wantErr: `kind "DaemonSet": want a Pod of v1, a Job of batch/v1, a Deployment or StatefulSet of apps/v1`},
		"a Deployment's replicas": {
			text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: a}\nspec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}\n",
			want: []string{"a/web-what-if-0", "a/web-what-if-1", "a/web-what-if-2"},
		},
		"a Deployment that says no number": {
			text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {selector: {}, template: {spec: {containers: [{name: c, image: i}]}}}\n",
			want: []string{"here/web-what-if-0"},
		},
		"a StatefulSet's replicas": {
			text: "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {replicas: 2, ordinals: {start: 5}, serviceName: s, selector: {}, template: {spec: {containers: [{name: c, image: i}]}}}\n",
			want: []string{"here/db-5", "here/db-6"},
		},
		"a Deployment of no pods":        {text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 0}\n", wantErr: "Deployment web: spec.replicas: it runs 0 pods, want 1 to 1000"},
		"a Deployment of too many pods":  {text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1001}\n", wantErr: "Deployment web: spec.replicas: it runs 1001 pods"},
		"a StatefulSet without template": {text: "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {}\n", wantErr: "pod here/db-0: spec.containers: missing"},
		"a StatefulSet that makes claims": {
			text:    "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {volumeClaimTemplates: [{metadata: {name: data}}]}\n",
			wantErr: "StatefulSet db: spec.volumeClaimTemplates: the claims that it would make are not answered for",
		},
		"a field of a Deployment that is not known": {text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replica: 2}\n", wantErr: `Deployment web: unknown field "spec.replica"`},
		"a Deployment whose template is long": {
			text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1000, template: {spec: {containers: [{name: c, image: " +
				strings.Repeat("x", 1<<20) + "}]}}}\n",
			wantErr: "Deployment web: spec.replicas 1000: all that is asked for takes more than 128 MiB of memory",
		},
		"no name":                {text: "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c}]}\n", wantErr: "Pod: metadata.name: missing"},
		"no container":           {text: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", wantErr: "pod here/p: spec.containers: missing"},
		"a pod that has a node":  {text: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeName: n1, containers: [{name: c}]}\n", wantErr: "pod here/p: spec.nodeName"},
		"a Job of too many pods": {text: "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 1001, template: {spec: {containers: [{name: c}]}}}\n", wantErr: "job j: spec.parallelism"},
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

// TestPodsOfReplicas: the pods of a Deployment and of a StatefulSet are as their controllers make them.
func TestPodsOfReplicas(t *testing.T) {
	type made struct {
		Owner, Hostname, Subdomain string
		Labels                     map[string]string
	}
	const template = "template: {metadata: {labels: {app: x}, annotations: {a: b}}, spec: {containers: [{name: c, image: i}]}}"
	for name, tc := range map[string]struct {
		text string
		want []made
	}{
		"a Deployment's are of a new ReplicaSet": {
			text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1, selector: {}, " + template + "}\n",
			want: []made{{Owner: "ReplicaSet web-what-if", Labels: map[string]string{"app": "x", "pod-template-hash": "what-if"}}},
		},
		"a StatefulSet's have their number": {
			text: "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {replicas: 1, serviceName: s, selector: {}, " + template + "}\n",
			want: []made{{Owner: "StatefulSet db", Hostname: "db-0", Subdomain: "s", Labels: map[string]string{
				"app": "x", "statefulset.kubernetes.io/pod-name": "db-0", "apps.kubernetes.io/pod-index": "0", "controller-revision-hash": "db-what-if",
			}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ReadAsked([]byte(tc.text), "here")
			if err != nil {
				t.Fatal(err)
			}
			var got []made
			for _, p := range a.Pods {
				o := metav1.GetControllerOf(p)
				if o == nil || o.UID == "" || p.Annotations["a"] != "b" {
					t.Fatalf("owner %v, annotations %v", o, p.Annotations)
				}
				got = append(got, made{o.Kind + " " + o.Name, p.Spec.Hostname, p.Spec.Subdomain, p.Labels})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
