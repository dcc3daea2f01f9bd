// SPDX-License-Identifier: Apache-2.0

package clusterobjects

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// counts are how many objects of each kind there are, without those of which there are none.
func counts(o *Objects) string {
	var out []string
	for _, k := range []struct {
		name string
		n    int
	}{
		{"nodes", len(o.Nodes)},
		{"pods", len(o.Pods)},
		{"namespaces", len(o.Namespaces)},
		{"topologies", len(o.Topologies)},
		{"leases", len(o.Leases)},
		{"groups", len(o.PodGroups)},
		{"budgets", len(o.Budgets)},
		{"jobs", len(o.Jobs)},
		{"claims", len(o.Claims)},
		{"classes", len(o.StorageClasses)},
		{"workloads", len(o.Workloads)},
		{"locals", len(o.LocalQueues)},
		{"queues", len(o.ClusterQueues)},
		{"elastic", len(o.ElasticJobs)},
		{"schedulers", len(o.Schedulers)},
	} {
		if k.n > 0 {
			out = append(out, fmt.Sprint(k.n, " ", k.name))
		}
	}
	if o.ClusterTopology != nil {
		out = append(out, "a fabric")
	}
	if len(o.Faults) > 0 {
		out = append(out, fmt.Sprint(len(o.Faults), " faults"))
	}
	if o.Published != nil {
		out = append(out, "profiles")
	}
	return strings.Join(out, ", ")
}

// TestAdd: what is saved of a cluster is read whole, or refused with the object and the field.
func TestAdd(t *testing.T) {
	for name, tc := range map[string]struct{ text, want, wantErr string }{
		"nothing":                                  {text: "\n---\nnull\n---\n# nothing\n"},
		"an object of each kind":                   {text: oneOfEach(), want: "1 nodes, 1 pods, 1 namespaces, 1 topologies, 1 leases, 1 groups, 1 budgets, 1 jobs, 1 claims, 1 classes, 1 workloads, 1 locals, 1 queues, 1 elastic, a fabric, profiles"},
		"a list of kubectl":                        {text: `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod"},{"apiVersion":"v1","kind":"Node"}]}`, want: "1 nodes, 1 pods"},
		"a list of the API server":                 {text: `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"p"}}]}`, want: "1 pods"},
		"a scheduler's state":                      {text: `{"version":1,"requestTimeout":"1s"}`, want: "1 schedulers"},
		"a state of a later version":               {text: `{"version":2,"requestTimeout":"1s"}`, wantErr: "document 1: a scheduler's state: version 2 of the state, and this program reads 1"},
		"a known kind in another version":          {text: "{apiVersion: kueue.x-k8s.io/v1beta1, kind: Workload, metadata: {name: w, namespace: team}}", want: "1 faults"},
		"a kind of another group":                  {text: "{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, spec: {minMember: many}}"},
		"another ClusterTopology":                  {text: "{apiVersion: topology.nvtopo.dev/v1alpha1, kind: ClusterTopology, metadata: {name: other}}"},
		"another ConfigMap":                        {text: "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}"},
		"an ElasticJob without a template of pods": {text: "{apiVersion: pool.nvtopo.dev/v1alpha1, kind: ElasticJob, metadata: {name: e}, spec: {template: {spec: many}}}", want: "1 elastic"},
		"a field of a later version":               {text: "{apiVersion: v1, kind: Pod, spec: {newest: true}}", want: "1 pods"},
		"what is no object":                        {text: "{}", wantErr: "document 1: neither an object, nor a list of them, nor a scheduler's state"},
		"an object without a version":              {text: "{kind: Pod, metadata: {name: p, namespace: team}}", wantErr: "document 1: Pod team/p: it has no apiVersion or no kind"},
		"an item without a kind":                   {text: "{kind: List, apiVersion: v1, items: [{metadata: {name: p}}]}", wantErr: "document 1: items[0]: object p: it has no apiVersion or no kind"},
		"a field of another type":                  {text: "a: 1\nkind: x\napiVersion: other/v1\n---\n{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: team}, spec: {containers: 3}}]}", wantErr: "document 2: items[0]: Pod team/p: spec.containers: want a list, not a number"},
		"a field that is there twice": {text: "apiVersion: v1\nkind: Pod\nkind: Pod\n", wantErr: `document 1: yaml: unmarshal errors:
  line 3: key "kind" already set in map`},
		"profiles that cannot be read": {text: "{apiVersion: v1, kind: ConfigMap, metadata: {name: nvtopo-scheduler-profiles, namespace: s}, data: {profiles.json: '{\"version\":9}'}}", wantErr: "document 1: ConfigMap s/nvtopo-scheduler-profiles: ConfigMap nvtopo-scheduler-profiles: data[profiles.json]: version 9: this program reads 1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &Objects{}
			err := o.Add([]byte(tc.text))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, counts(o)); err == nil && diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// oneOfEach is an object of each kind that is read.
func oneOfEach() string {
	var b strings.Builder
	for _, r := range readings {
		name, data := "o", ""
		switch r.is.Kind {
		case "ClusterTopology":
			name = "default"
		case "ConfigMap":
			name, data = "nvtopo-scheduler-profiles", `, data: {profiles.json: '{"version":1}'}`
		}
		fmt.Fprintf(&b, "---\n{apiVersion: %s, kind: %s, metadata: {name: %s}%s}\n", r.is.GroupVersion(), r.is.Kind, name, data)
	}
	return b.String()
}
