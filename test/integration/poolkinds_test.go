// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// TestPoolKinds: the API server admits every example and refuses what is malformed, and its
// answer names the field.
func TestPoolKinds(t *testing.T) { //nolint:tparallel // its steps share one cluster
	c := startCluster(t, devcluster.Config{})
	if err := c.ApplyManifests(t.Context(), manifests.Pools); err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "ml-workloads"}}}
	if _, err := objectsOf(dyn, namespace).Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("examples are admitted", func(t *testing.T) { admitsPoolExamples(t, dyn) })
	t.Run("a pool", func(t *testing.T) { refusals(t, dyn, poolExample(t, "training-pool.yaml"), malformedPools) })
	t.Run("a pool that changes", func(t *testing.T) { forbiddenChanges(t, dyn, poolExample(t, "training-pool.yaml"), changesOfPools) })
	t.Run("an elastic job", func(t *testing.T) { refusals(t, dyn, poolExample(t, "llm-training.yaml"), malformedJobs) })
	t.Run("an elastic job that changes", func(t *testing.T) { forbiddenChanges(t, dyn, poolExample(t, "llm-training.yaml"), changesOfJobs) })
	t.Run("an elastic job is scaled", func(t *testing.T) { scalesAJob(t, dyn) })
	t.Run("a price book", func(t *testing.T) { refusals(t, dyn, poolExample(t, "price-book.yaml"), malformedBooks) })
	t.Run("a price book that changes", func(t *testing.T) { forbiddenChanges(t, dyn, poolExample(t, "price-book.yaml"), changesOfBooks) })
	t.Run("an account", func(t *testing.T) { refusals(t, dyn, poolExample(t, "tenant-account.yaml"), malformedAccounts) })
	t.Run("an account that changes", func(t *testing.T) { forbiddenChanges(t, dyn, poolExample(t, "tenant-account.yaml"), changesOfAccounts) })
	t.Run("an invoice", func(t *testing.T) { refusals(t, dyn, topologyObject(t, invoice), malformedInvoices) })
	t.Run("an open invoice", func(t *testing.T) { forbiddenChanges(t, dyn, topologyObject(t, invoice), changesOfOpenInvoices) })
	t.Run("a final invoice", func(t *testing.T) { forbiddenChanges(t, dyn, finalInvoice(t), changesOfFinalInvoices) })
	t.Run("a record", func(t *testing.T) { refusals(t, dyn, topologyObject(t, record), malformedRecords) })
	t.Run("a record that changes", func(t *testing.T) { forbiddenChanges(t, dyn, topologyObject(t, record), changesOfRecords) })
	t.Run("a record that ends", func(t *testing.T) { endsARecord(t, dyn) })
	t.Run("a remote session", func(t *testing.T) { refusals(t, dyn, poolExample(t, "remote-session.yaml"), malformedSessions) })
	t.Run("a remote session that changes", func(t *testing.T) { forbiddenChanges(t, dyn, poolExample(t, "remote-session.yaml"), changesOfSessions) })
	t.Run("a pool has defaults", func(t *testing.T) { defaultsOfAPool(t, dyn) })
}

// objectsOf is where the objects of a kind are, in the namespace of one of them.
func objectsOf(dyn dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
	kind, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if o.GetNamespace() == "" {
		return dyn.Resource(kind)
	}
	return dyn.Resource(kind).Namespace(o.GetNamespace())
}

func poolExample(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	text, err := manifests.FS.ReadFile("examples/pools/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return topologyObject(t, string(text))
}

var tried = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}

func admitsPoolExamples(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	files, err := fs.Glob(manifests.FS, "examples/pools/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		if path.Base(file) == "kustomization.yaml" {
			continue
		}
		o := poolExample(t, path.Base(file))
		if _, err := objectsOf(dyn, o).Create(t.Context(), o, tried); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// mistake is an object with something set to another value, and what the answer says then.
type mistake struct {
	at    string // a path with dots
	value any
	want  string
}

// refusals creates copies of a good object with a mistake each.
func refusals(t *testing.T, dyn dynamic.Interface, good *unstructured.Unstructured, mistakes map[string]mistake) {
	t.Helper()
	for name, tc := range mistakes {
		t.Run(name, func(t *testing.T) {
			o := good.DeepCopy()
			setAt(t, o, tc.at, tc.value)
			_, err := objectsOf(dyn, o).Create(t.Context(), o, tried)
			answers(t, err, tc.want)
		})
	}
}

// forbiddenChanges creates an object and tries to change it.
func forbiddenChanges(t *testing.T, dyn dynamic.Interface, o *unstructured.Unstructured, changes map[string]mistake) {
	t.Helper()
	made, err := objectsOf(dyn, o).Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range changes {
		t.Run(name, func(t *testing.T) {
			changed := made.DeepCopy()
			setAt(t, changed, tc.at, tc.value)
			_, err := objectsOf(dyn, o).Update(t.Context(), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			answers(t, err, tc.want)
		})
	}
}

// setAt sets a field, or removes it if the value is nil.
func setAt(t *testing.T, o *unstructured.Unstructured, at string, value any) {
	t.Helper()
	if value == nil {
		unstructured.RemoveNestedField(o.Object, strings.Split(at, ".")...)
		return
	}
	if err := unstructured.SetNestedField(o.Object, value, strings.Split(at, ".")...); err != nil {
		t.Fatal(err)
	}
}

// answers says that an answer has some text; an empty one wants no refusal.
func answers(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want == "":
	case err == nil || !strings.Contains(err.Error(), want):
		t.Errorf("got %v, want a refusal with %q", err, want)
	}
}

// quota is an entry of spec.quotas, after that of team-a with 16 of 32.
func quota(tenant string, limit, guaranteed int64) []any {
	return []any{
		map[string]any{"tenant": "team-a", "limit": int64(32), "guaranteed": int64(16)},
		map[string]any{"tenant": tenant, "limit": limit, "guaranteed": guaranteed},
	}
}

// queue is a list of one queue with a field more.
func queue(field string, value any) []any {
	return []any{map[string]any{"name": "normal", "guaranteedCapacity": int64(16), field: value}}
}

var malformedPools = map[string]mistake{
	"as it is":                                 {"metadata.name", "other", ""},
	"a name with a dot":                        {"metadata.name", "a.b", "metadata.name: at most 63"},
	"a name that no label takes":               {"metadata.name", strings.Repeat("p", 64), "metadata.name: at most 63"},
	"no type":                                  {"spec.poolType", nil, "spec.poolType: Required"},
	"a type that is none":                      {"spec.poolType", "tpu", "spec.poolType: Unsupported value"},
	"no capacity":                              {"spec.capacity", nil, "spec.capacity: Required"},
	"nothing in it":                            {"spec.capacity.total", int64(0), "spec.capacity.total"},
	"more reserved than there is":              {"spec.capacity.reserved", int64(65), "capacity.reserved: must be at most capacity.total"},
	"less than nothing reserved":               {"spec.capacity.reserved", int64(-1), "spec.capacity.reserved"},
	"a strategy that is none":                  {"spec.virtualization.strategy", "foo", "spec.virtualization.strategy: Unsupported value"},
	"divided without a strategy":               {"spec.virtualization.strategy", nil, "virtualization.strategy: is needed"},
	"replicas of a slice":                      {"spec.virtualization.replicas", int64(4), "virtualization.replicas: is for the strategy time-slicing"},
	"a profile of turns":                       {"spec.virtualization", map[string]any{"strategy": "time-slicing", "profile": "all-1g.10gb"}, "virtualization.profile: is for the strategies mig and vgpu"},
	"a profile that no label takes":            {"spec.virtualization.profile", "3g 40gb", "spec.virtualization.profile"},
	"one replica":                              {"spec.virtualization", map[string]any{"strategy": "time-slicing", "replicas": int64(1)}, "spec.virtualization.replicas"},
	"a guarantee above its limit":              {"spec.quotas", quota("b", 32, 33), "spec.quotas[1].guaranteed: Invalid value"},
	"a limit above the pool":                   {"spec.quotas", quota("b", 65, 0), "quotas: limit must be at most capacity.total"},
	"guarantees of all that is not reserved":   {"spec.quotas", quota("b", 64, 40), ""},
	"guarantees of one more":                   {"spec.quotas", quota("b", 64, 41), "quotas: the sum of guaranteed must be at most capacity.total less capacity.reserved"},
	"a tenant twice":                           {"spec.quotas", quota("team-a", 8, 0), "spec.quotas[1]: Duplicate value"},
	"a tenant that is no label":                {"spec.quotas", quota("Team B", 8, 0), "spec.quotas[1].tenant"},
	"65 tenants":                               {"spec.quotas", manyQuotas(65), "spec.quotas: Too many"},
	"a default above the pool":                 {"spec.defaultQuota", map[string]any{"limit": int64(65)}, "defaultQuota.limit: must be at most capacity.total"},
	"a default that guarantees":                {"spec.defaultQuota", map[string]any{"guaranteed": int64(1)}, "spec.defaultQuota.guaranteed"},
	"a policy that is none":                    {"spec.queues", queue("policy", "lifo"), "spec.queues[0].policy: Unsupported value"},
	"a queue that gets more than it may":       {"spec.queues", queue("maxCapacity", int64(15)), "spec.queues[0].guaranteedCapacity: Invalid value"},
	"a queue above the pool":                   {"spec.queues", queue("maxCapacity", int64(65)), "queues: maxCapacity must be at most capacity.total"},
	"queues with more guaranteed than is left": {"spec.queues", queue("guaranteedCapacity", int64(57)), "queues: the sum of guaranteedCapacity must be at most capacity.total less capacity.reserved"},
	"a queue that fits into a label":           {"spec.queues", queue("name", strings.Repeat("q", 49)), ""},
	"a queue that no label takes":              {"spec.queues", queue("name", strings.Repeat("q", 50)), "queues: jobs name a queue POOL.NAME in a label"},
	"a queue of no weight":                     {"spec.queues", queue("weight", int64(0)), "spec.queues[0].weight"},
	"a queue of half a weight":                 {"spec.queues", queue("weight", 0.5), ""},
	"a weight below a thousandth":              {"spec.queues", queue("weight", 0.0001), "spec.queues[0].weight: Invalid value: 0.0001: spec.queues[0].weight in body should be greater than or equal to 0.001"},
	"a weight in words":                        {"spec.queues", queue("weight", "half"), "spec.queues[0].weight"},
	"a queue of an unheard priority":           {"spec.queues", queue("priority", int64(1001)), "spec.queues[0].priority"},
	"a preemption policy that is none":         {"spec.queues", queue("preemptionPolicy", "Always"), "spec.queues[0].preemptionPolicy: Unsupported value"},
	"a queue twice":                            {"spec.queues", append(queue("weight", int64(1)), queue("weight", int64(2))...), "spec.queues[1]: Duplicate value"},
	"a stop that is none":                      {"spec.stopPolicy", "Drain", "spec.stopPolicy: Unsupported value"},
	"no node at all":                           {"spec.nodeSelector", map[string]any{}, "spec.nodeSelector"},
	"a resource that is no extended one":       {"spec.resources", []any{"cpu"}, "spec.resources[0]"},
	"a field nobody knows":                     {"spec.quota", "x", "spec.quota"},
}

func manyQuotas(n int) (out []any) {
	for i := range n {
		out = append(out, map[string]any{"tenant": "t" + strings.Repeat("x", i%60) + string(rune('a'+i/60))})
	}
	return out
}

var changesOfPools = map[string]mistake{
	"the type":               {"spec.poolType", "npu", "poolType: cannot be changed"},
	"a larger reserve":       {"spec.capacity.reserved", int64(12), ""},
	"a reserve of too much":  {"spec.capacity.reserved", int64(41), "quotas: the sum of guaranteed"},
	"fewer than a limit has": {"spec.capacity.total", int64(31), "quotas: limit must be at most capacity.total"},
}

// defaultsOfAPool: what a short spec means is in the object.
func defaultsOfAPool(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	o := topologyObject(t, `apiVersion: pool.nvtopo.dev/v1alpha1
kind: ComputePool
metadata: {name: short}
spec: {poolType: gpu, capacity: {total: 8}, defaultQuota: {}, fairShare: {}, quotas: [{tenant: a}], queues: [{name: q}]}`)
	made, err := dyn.Resource(poolv1alpha1.ComputePoolGVR).Create(t.Context(), o, tried)
	if err != nil {
		t.Fatal(err)
	}
	var got poolv1alpha1.ComputePool
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(made.Object, &got, true); err != nil {
		t.Fatal(err)
	}
	want := poolv1alpha1.ComputePoolSpec{
		PoolType: poolv1alpha1.PoolGPU, Capacity: poolv1alpha1.PoolCapacity{Total: 8},
		Quotas: []poolv1alpha1.TenantQuota{{Tenant: "a", Weight: 1}}, DefaultQuota: &poolv1alpha1.DefaultQuota{Weight: 1},
		Queues: []poolv1alpha1.PoolQueue{{
			Name: "q", Policy: poolv1alpha1.QueueFairShare, Weight: 1, PreemptionPolicy: poolv1alpha1.PreemptLowerPriority,
			Reclaimable: new(true), StopPolicy: poolv1alpha1.StopNone,
		}},
		Hierarchy: poolv1alpha1.TenantFirst, FairShare: &poolv1alpha1.FairShare{Enabled: new(true)}, StopPolicy: poolv1alpha1.StopNone,
		MaxTerminationGracePeriodSeconds: poolv1alpha1.DefaultMaxTerminationGracePeriodSeconds,
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
