// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func replicas(least, most int64) map[string]any {
	return map[string]any{"minReplicas": least, "maxReplicas": most, "gpuPerReplica": int64(8)}
}

var malformedJobs = map[string]mistake{
	"as it is":                          {"metadata.name", "other", ""},
	"a name that no host can have":      {"metadata.name", strings.Repeat("j", 53), "metadata.name: at most 52"},
	"a name that begins with a digit":   {"metadata.name", "7b", "metadata.name: at most 52"},
	"no pool":                           {"spec.pool", nil, "spec.pool: Required"},
	"a pool that no label takes":        {"spec.pool", "Training Pool", "spec.pool"},
	"an unheard priority":               {"spec.priority", int64(1001), "spec.priority"},
	"a priority below all":              {"spec.priority", int64(-1001), "spec.priority"},
	"no scaling":                        {"spec.scaling", nil, "spec.scaling: Required"},
	"fewer at most than at least":       {"spec.scaling", replicas(5, 4), "scaling.minReplicas: must be at most scaling.maxReplicas"},
	"no replica":                        {"spec.scaling.minReplicas", int64(0), "spec.scaling.minReplicas"},
	"256 more at most than at least":    {"spec.scaling", replicas(4, 260), ""},
	"257 more":                          {"spec.scaling", replicas(4, 261), "scaling.maxReplicas: must be at most 256 above scaling.minReplicas"},
	"replicas without a GPU":            {"spec.scaling.gpuPerReplica", int64(0), "spec.scaling.gpuPerReplica"},
	"replicas of more than a node":      {"spec.scaling.gpuPerReplica", int64(65), "spec.scaling.gpuPerReplica"},
	"a rendezvous that is none":         {"spec.scaling.rendezvous", "c10d", "spec.scaling.rendezvous: Unsupported value"},
	"no time to run":                    {"spec.maxRunSeconds", int64(0), "spec.maxRunSeconds"},
	"a strategy in either spelling":     {"spec.placement", map[string]any{"strategy": "communication_heavy"}, ""},
	"the same with a hyphen":            {"spec.placement", map[string]any{"strategy": "communication-heavy"}, ""},
	"a strategy that is none":           {"spec.placement", map[string]any{"strategy": "fast"}, "spec.placement.strategy: Unsupported value"},
	"an algorithm that is none":         {"spec.placement", map[string]any{"algorithm": "star"}, "spec.placement.algorithm: Unsupported value"},
	"the algorithm that is compared by": {"spec.placement", map[string]any{"algorithm": "ring", "dataSizeMB": int64(100)}, ""},
	"an algorithm that is only shown":   {"spec.placement", map[string]any{"algorithm": "tree"}, "placement.algorithm: must be ring or absent"},
	"the same in the other spelling":    {"spec.placement", map[string]any{"algorithm": "recursive_halving"}, "placement.algorithm: must be ring or absent"},
	"no template":                       {"spec.template", nil, "spec.template: Required"},
	"a template in words":               {"spec.template", "trainer", "spec.template"},
	"a field nobody knows":              {"spec.replicas", int64(4), "spec.replicas"},
	"a field of pods that we know less": {"spec.template.spec.resourceClaims", []any{map[string]any{"name": "c"}}, ""},
}

var changesOfJobs = map[string]mistake{
	"the pool":                    {"spec.pool", "other", "pool: cannot be changed"},
	"to be preemptible":           {"spec.preemptible", true, "preemptible: cannot be changed"},
	"the template":                {"spec.template.spec.nodeName", "n1", "template: cannot be changed"},
	"the GPUs of a replica":       {"spec.scaling.gpuPerReplica", int64(4), "scaling.gpuPerReplica: cannot be changed"},
	"the least number":            {"spec.scaling.minReplicas", int64(5), "scaling.minReplicas: cannot be changed"},
	"the most":                    {"spec.scaling.maxReplicas", int64(8), ""},
	"the most to below the least": {"spec.scaling.maxReplicas", int64(3), "scaling.minReplicas: must be at most"},
	"the priority":                {"spec.priority", int64(5), ""},
	"to wait":                     {"spec.suspend", true, ""},
}

// scalesAJob does what kubectl scale does.
func scalesAJob(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	jobs := dyn.Resource(poolv1alpha1.ElasticJobGVR).Namespace("ml-workloads")
	o := poolExample(t, "llm-training.yaml")
	o.SetName("scaled")
	if _, err := jobs.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scale := func(patch string) error {
		_, err := jobs.Patch(t.Context(), "scaled", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "scale")
		return err
	}
	if err := scale(`{"spec":{"replicas":5}}`); err != nil {
		t.Error(err)
	}
	answers(t, scale(`{"spec":{"replicas":3}}`), "scaling.minReplicas: must be at most scaling.maxReplicas")
	got, err := jobs.Get(t.Context(), "scaled", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if most, _, _ := unstructured.NestedInt64(got.Object, "spec", "scaling", "maxReplicas"); most != 5 {
		t.Errorf("maxReplicas is %d, want 5", most)
	}
	status := []byte(`{"status":{"replicas":4,"readyReplicas":3,"extraReplicas":0,"preemptions":0,"selector":"pool.nvtopo.dev/job=scaled"}}`)
	if _, err := jobs.Patch(t.Context(), "scaled", types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	seen, err := jobs.Get(t.Context(), "scaled", metav1.GetOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}
	n, _, _ := unstructured.NestedInt64(seen.Object, "status", "replicas")
	if selector, _, _ := unstructured.NestedString(seen.Object, "status", "selector"); n != 4 || selector != "pool.nvtopo.dev/job=scaled" {
		t.Errorf("an autoscaler sees %d replicas by selector %q, want 4 and that of status", n, selector)
	}
}

var malformedSessions = map[string]mistake{
	"as it is":                     {"metadata.name", "other", ""},
	"a name that no Service has":   {"metadata.name", "7b", "metadata.name: at most 52"},
	"no end":                       {"spec.ttlSeconds", nil, "spec.ttlSeconds: Required"},
	"an end at once":               {"spec.ttlSeconds", int64(59), "spec.ttlSeconds"},
	"more devices than a node has": {"spec.gpus", int64(65), "spec.gpus"},
	"calls of CUDA":                {"spec.operations", []any{"CUDA_LAUNCH_KERNEL"}, "spec.operations[0]: Unsupported value"},
	"no operation":                 {"spec.operations", []any{}, "spec.operations"},
	"an operation twice":           {"spec.operations", []any{"MODEL_FORWARD", "MODEL_FORWARD"}, "spec.operations[1]: Duplicate value"},
	"no server":                    {"spec.server", nil, "spec.server: Required"},
	"a port of root's":             {"spec.server.port", int64(80), "spec.server.port"},
}

var changesOfSessions = map[string]mistake{
	"a longer time":  {"spec.ttlSeconds", int64(7200), ""},
	"another image":  {"spec.server.image", "example.com/other:1", "server: cannot be changed"},
	"a device more":  {"spec.gpus", int64(2), "gpus: cannot be changed"},
	"another pool":   {"spec.pool", "other", "pool: cannot be changed"},
	"less to be had": {"spec.operations", []any{"TENSOR_OP"}, "operations: cannot be changed"},
}
