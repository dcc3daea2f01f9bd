// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"maps"
	"testing"
)

// crowded is an object with n annotations, and others that are given as key, value, key, value.
func crowded(n int, pairs ...string) map[string]any {
	o := annotated(pairs...)
	maps.Copy(child(o, "metadata", "annotations"), keys("a%d", n-len(pairs)/2))
	return o
}

// crowdedTemplate is an object whose pod template has n annotations, and others.
func crowdedTemplate(n int, pairs ...string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"template": crowded(n, pairs...), "replicas": int64(1)}}
}

// TestTooManyEntries: what is too long for a policy to go through is refused with its number and what
// may be, and what was so before may stay, but for what the policy refuses otherwise.
func TestTooManyEntries(t *testing.T) {
	const ids = "nvtopo.dev/gpu-ids"
	scaled := crowdedTemplate(600)
	specOf(scaled)["replicas"] = int64(2)
	node := func(labels int, more ...string) map[string]any {
		o := map[string]any{"metadata": map[string]any{"name": "n1", "labels": keys("a%d", labels)}}
		for _, key := range more {
			child(o, "metadata", "labels")[key] = "x"
		}
		return o
	}
	n1, hardware := account("nvtopo-system", "n1"), []string{"report-hardware nodegputopologies"}
	gated := grown("gates", 64)
	specOf(gated)["schedulingGates"] = append(specOf(gated)["schedulingGates"].([]any)[:63], map[string]any{"name": "kueue.x-k8s.io/admission"})
	const annotations = "metadata.annotations: a pod may have at most 512 annotations, it has 513"
	tests := map[string]struct {
		policy  string
		request request
		want    string // part of the refusal; empty: accepted
	}{
		"a pod with as many annotations as it may have":     {"nvtopo-allocations", request{resource: "pods", object: crowded(512)}, ""},
		"a pod with one more":                               {"nvtopo-allocations", request{resource: "pods", object: crowded(513)}, annotations},
		"a pod with one more, an allocation among them":     {"nvtopo-allocations", request{resource: "pods", object: crowded(513, ids, "x")}, annotations},
		"a pod that gets one more":                          {"nvtopo-allocations", request{resource: "pods", object: crowded(513), old: crowded(512)}, annotations},
		"by its status":                                     {"nvtopo-allocations", request{resource: "pods", subresource: "status", object: crowded(513), old: crowded(512)}, annotations},
		"the scheduler adds its own":                        {"nvtopo-allocations", request{resource: "pods", object: crowded(520, ids, "x"), old: crowded(512), may: []string{"write allocations"}}, ""},
		"an old pod with more changes one":                  {"nvtopo-allocations", request{resource: "pods", object: crowded(600, "b", "y"), old: crowded(600, "b", "x")}, ""},
		"an old pod with more changes an allocation":        {"nvtopo-allocations", request{resource: "pods", object: crowded(600, ids, "y"), old: crowded(600, ids, "x")}, ids + ": only the scheduler"},
		"an old pod with more takes one for another":        {"nvtopo-allocations", request{resource: "pods", object: crowded(600, ids, "y"), old: crowded(600, "b", "x")}, ids + ": only the scheduler"},
		"an old pod with more drops an allocation":          {"nvtopo-allocations", request{resource: "pods", object: crowded(599), old: crowded(600, ids, "x")}, ids + ": only the scheduler"},
		"a Binding with too many":                           {"nvtopo-allocations", request{resource: "bindings", object: crowded(513)}, "may have at most 512 annotations, it has 513"},
		"a PodGroup with too many":                          {"nvtopo-allocations", request{resource: "podgroups", object: crowded(513)}, "may have at most 512 annotations, it has 513"},
		"a Deployment with as many as its pods may have":    {"nvtopo-templates", request{resource: "deployments", object: crowdedTemplate(512)}, ""},
		"a Deployment with one more":                        {"nvtopo-templates", request{resource: "deployments", object: crowdedTemplate(513)}, "spec.template.metadata.annotations: a pod may have at most 512 annotations, it has 513"},
		"an old Deployment with more is scaled":             {"nvtopo-templates", request{resource: "deployments", object: scaled, old: crowdedTemplate(600)}, ""},
		"an old Deployment with more gets an allocation":    {"nvtopo-templates", request{resource: "deployments", object: crowdedTemplate(600, ids, "x"), old: crowdedTemplate(600)}, "drop " + ids},
		"a bad input among thousands of annotations":        {"nvtopo-inputs", request{resource: "pods", object: crowded(4000, "nvtopo.dev/min-link", "x")}, "nvtopo.dev/min-link: want "},
		"a good input among thousands of annotations":       {"nvtopo-inputs", request{resource: "pods", object: crowded(4000, "nvtopo.dev/min-link", "PIX")}, ""},
		"a Node with as many labels as a policy looks at":   {"nvtopo-node-marks", request{resource: "nodes", object: node(511, "nvtopo.dev/x"), old: node(511), user: n1, may: hardware}, ""},
		"a Node with more, which its kubelet gave it":       {"nvtopo-node-marks", request{resource: "nodes", object: node(600, "nvtopo.dev/x"), old: node(600), user: n1, may: hardware}, "metadata: this account may change a Node with at most 512 labels and 512 annotations, this one has 601 and 0"},
		"a Node that would get more":                        {"nvtopo-node-marks", request{resource: "nodes", object: node(600), old: node(1), user: n1, may: hardware}, "this one has 600 and 0, and had 1 and 0"},
		"a Node with more, changed by its kubelet":          {"nvtopo-node-marks", request{resource: "nodes", object: node(601), old: node(600)}, ""},
		"a tenant's pod with too many labels":               {"nvtopo-pool-keys", request{resource: "pods", object: grown("labels", 513)}, "at most 512 labels and 512 annotations"},
		"a tenant's job whose pods have too many":           {"nvtopo-pool-keys", request{resource: "jobs", object: grown("annotations of the template", 513)}, "it has 0 and 0, the template 0 and 513"},
		"a tenant's pod with as many labels as it may have": {"nvtopo-pool-keys", request{resource: "pods", object: grown("labels", 512)}, ""},
		"a tenant's pod with too many finalizers":           {"nvtopo-pool-keys", request{resource: "pods", object: grown("finalizers", 65)}, "and 0 and 65"},
		"the scheduler adds its own to a tenant's pod":      {"nvtopo-pool-keys", request{resource: "pods", object: crowded(520, ids, "x"), old: crowded(512), may: []string{"write allocations"}}, ""},
		"an old pod of a tenant with more":                  {"nvtopo-pool-keys", request{resource: "pods", object: crowded(600, "b", "y"), old: crowded(600, "b", "x")}, ""},
		"an old pod of a tenant that gets a key of Kueue":   {"nvtopo-pool-keys", request{resource: "pods", object: crowded(600, "kueue.x-k8s.io/x", "y"), old: crowded(600)}, "only Kueue writes this"},
		"a tenant's pod with too many owners":               {"nvtopo-pool-admission", request{resource: "pods", object: grown("owners", 65)}, "at most 64 owners, it has 65"},
		"an old pod of a tenant with more owners":           {"nvtopo-pool-admission", request{resource: "pods", object: grown("owners", 65), old: grown("owners", 65)}, ""},
		"a tenant's pod with too many gates":                {"nvtopo-pool-admission", request{resource: "pods", object: grown("gates", 65)}, "at most 64 gates, it has 65"},
		"a tenant's pod with as many gates as it may have":  {"nvtopo-pool-admission", request{resource: "pods", object: gated}, ""},
		"a pod with too many containers for a pool's nodes": {"nvtopo-pool-foreign", request{resource: "pods", object: grown("containers", 129), params: map[string]any{"metadata": map[string]any{"name": "training"}, "spec": map[string]any{}}}, "at most 128 containers with at most 64 limits each, it has 129"},
		"a tenant's pod with too many containers":           {"nvtopo-pool-starts", request{resource: "pods", object: grown("containers", 129)}, "at most 128 containers with at most 64 limits each, it has 129"},
		"a tenant's pod with too many limits":               {"nvtopo-pool-starts", request{resource: "pods", object: grown("limits of a container", 65)}, "at most 64 limits each"},
		"a tenant's JobSet with too many jobs":              {"nvtopo-pool-jobsets", request{resource: "jobsets", object: grown("jobs of a JobSet", 129)}, "it has 0, 0 and 129"},
		"a tenant's JobSet with too many labels in a job":   {"nvtopo-pool-jobsets", request{resource: "jobsets", object: grown("labels of a job of a JobSet", 129)}, "templates of at most 128 labels"},
		"a tenant's Deployment with too many containers":    {"nvtopo-pool-deployments", request{resource: "deployments", object: grown("containers", 129)}, "more than 128 containers"},
		"a tenant's LimitRange with too many limits":        {"nvtopo-pool-defaults", request{resource: "limitranges", object: grown("limits of a LimitRange", 65)}, "at most 64 limits of at most 128 resources each, it has 65"},
	}
	policies := compiledPolicies(t)
	maps.Copy(policies, compiledPoolPolicies(t))
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { checkAnswer(t, answer(t, policies, tc.request, tc.policy), tc.want) })
	}
}
