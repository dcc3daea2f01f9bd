// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
)

// draws are random requests of an account that may nothing in particular, of keys and values that
// the policies know, and of others.
type draws struct{ *rand.Rand }

var (
	knownKeys = []string{
		"nvtopo.dev/allocation", "nvtopo.dev/gpu-ids", "nvtopo.dev/gpu-ids.main", "nvtopo.dev/gpu-ids-of", "scheduling.k8s.io/gpu-ids",
		"nvtopo.dev/min-link", "nvtopo.dev/gang-size", "nvtopo.dev/gang", "a", "job-name", "batch.kubernetes.io/controller-uid",
		"kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed", "kueue.x-k8s.io/podset-x", "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/x",
	}
	knownValues = []string{"", "x", "PIX", "4"}
)

// entries has few keys that are known, and often as many others as a policy allows or some more.
func (d draws) entries() map[string]any {
	out := map[string]any{}
	if d.IntN(8) == 0 {
		out = keys("a%d", []int{509, 512, 513, 600}[d.IntN(4)])
	}
	for range d.IntN(4) {
		out[knownKeys[d.IntN(len(knownKeys))]] = knownValues[d.IntN(len(knownValues))]
	}
	return out
}

func (d draws) names(of ...string) []any {
	if d.IntN(8) == 0 {
		return list([]int{64, 65}[d.IntN(2)], func(i int) any { return fmt.Sprint(of[0], i) })
	}
	var out []any
	for _, name := range of {
		if d.IntN(3) == 0 {
			out = append(out, name)
		}
	}
	return out
}

func (d draws) owners() []any {
	out := d.names("Job", "Pod", "ReplicaSet")
	for i, kind := range out {
		out[i] = map[string]any{"kind": kind, "name": "y", "uid": "1", "controller": d.IntN(2) == 0}
	}
	return out
}

func (d draws) metadata() map[string]any {
	out := map[string]any{"name": "x", "namespace": "team-a"}
	for _, field := range []string{"annotations", "labels"} {
		if d.IntN(2) == 0 {
			out[field] = d.entries()
		}
	}
	if d.IntN(3) == 0 {
		out["finalizers"] = d.names("kueue.x-k8s.io/managed", "a/b")
	}
	if d.IntN(3) == 0 {
		out["ownerReferences"] = d.owners()
	}
	return out
}

// object has a template where the kind has one.
func (d draws) object(resource string) map[string]any {
	o := map[string]any{"metadata": d.metadata()}
	path := map[string][]string{"podtemplates": {"template"}, "cronjobs": {"spec", "jobTemplate", "spec", "template"}, "pods": nil, "bindings": nil, "podgroups": nil}
	template, known := path[resource]
	if !known {
		template = []string{"spec", "template"}
	}
	if template != nil && d.IntN(4) != 0 {
		child(o, template...)["metadata"] = d.metadata()
	}
	return o
}

// changed is an object that has some parts of another, as an update has.
func (d draws) changed(old map[string]any, resource string) map[string]any {
	o := d.object(resource)
	for field, value := range old["metadata"].(map[string]any) {
		if d.IntN(2) == 0 {
			metaOf(o)[field] = value
		}
	}
	return o
}

func (d draws) request(resources ...string) request {
	r := request{resource: resources[d.IntN(len(resources))]}
	if d.IntN(2) == 0 {
		r.old = d.object(r.resource)
		r.object = d.changed(r.old, r.resource)
		return r
	}
	r.object = d.object(r.resource)
	return r
}

// TestConditionsLetNothingThrough: policies whose conditions only spare the API server the
// validations refuse the same requests without the conditions.
func TestConditionsLetNothingThrough(t *testing.T) {
	tests := map[string][]string{
		"nvtopo-allocations": {"pods", "bindings", "podgroups"},
		"nvtopo-templates":   {"deployments", "jobs", "cronjobs", "podtemplates"},
		"nvtopo-inputs":      {"pods", "pods", "deployments", "cronjobs", "podtemplates"},
		"nvtopo-pool-keys":   {"pods", "pods", "jobs", "workloads", "bindings"},
	}
	all := allPolicies(t)
	for name, resources := range tests {
		t.Run(name, func(t *testing.T) {
			p := all[slices.IndexFunc(all, func(p *admissionregistrationv1.ValidatingAdmissionPolicy) bool { return p.Name == name })]
			bare := p.DeepCopy()
			bare.Spec.MatchConditions = nil
			with, without := map[string]validating.Validator{name: compile(t, p)}, map[string]validating.Validator{name: compile(t, bare)}
			d, refused := draws{rand.New(rand.NewPCG(1, 1))}, 0
			for range 3000 {
				r := d.request(resources...)
				// How many are compared: what a message lists is in no order.
				want, got := answer(t, without, r, name), answer(t, with, r, name)
				if len(want) != len(got) {
					t.Fatalf("%v\nwithout: %v\nwith: %v", r, want, got)
				}
				if len(want) > 0 {
					refused++
				}
			}
			if refused < 100 || refused > 2900 {
				t.Errorf("%d of 3000 are refused: this was not a test", refused)
			}
		})
	}
}
