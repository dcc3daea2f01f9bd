// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// poolExamples is the folder of the examples of pools. What the API server says of them and
// of malformed ones is in test/integration.
const poolExamples = "examples/pools/"

// TestRequirementPool: the training pool is the requirement's. Nothing but the apiVersion of the
// requirement's pool has changed, and all of it is in the type. It says in addition how much team-a
// may protect: the requirement's own job must not be preempted, and is larger than its guarantee.
func TestRequirementPool(t *testing.T) {
	pool := &v1alpha1.ComputePool{}
	example(t, "training-pool.yaml", pool)
	want := v1alpha1.ComputePoolSpec{
		PoolType:       v1alpha1.PoolGPU,
		Capacity:       v1alpha1.PoolCapacity{Total: 64, Reserved: 8},
		Virtualization: &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyMIG},
		Quotas: []v1alpha1.TenantQuota{
			{Tenant: "team-a", Limit: new(int32(32)), Guaranteed: 16, ProtectedLimit: new(int32(32))},
			{Tenant: "team-b", Limit: new(int32(24)), Guaranteed: 8},
			{Tenant: "team-c", Limit: new(int32(16))},
		},
	}
	if diff := cmp.Diff(want, pool.Spec); diff != "" {
		t.Errorf("(-requirement +example)\n%s", diff)
	}
}

// TestRequirementJob: the elastic job is the requirement's: the same of its job.
func TestRequirementJob(t *testing.T) {
	job := &v1alpha1.ElasticJob{}
	example(t, "llm-training.yaml", job)
	limits := v1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("512Gi")}
	want := v1alpha1.ElasticJobSpec{
		Pool: "training-pool", Priority: 100, Preemptible: new(false),
		Scaling: v1alpha1.Scaling{MinReplicas: 4, MaxReplicas: 16, GPUPerReplica: 8},
		Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "trainer", Image: "pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime", Command: []string{"torchrun"},
			Args: []string{
				"--nproc_per_node=8", "--nnodes=$(WORLD_SIZE)", "--node_rank=$(RANK)", "--master_addr=$(MASTER_ADDR)",
				"--master_port=29500", "train.py",
			},
			Resources: v1.ResourceRequirements{Limits: limits}, Env: []v1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}},
		}}}},
	}
	if diff := cmp.Diff(want, job.Spec); diff != "" {
		t.Errorf("(-requirement +example)\n%s", diff)
	}
}

// example strictly decodes an example of pools.
func example(t *testing.T, name string, into any) {
	t.Helper()
	text, err := manifests.FS.ReadFile(poolExamples + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestPoolCostLimits fails when the rules would refuse a valid object
// for being too costly to check.
func TestPoolCostLimits(t *testing.T) {
	name := func(prefix string, i int) string { return fmt.Sprintf("%s%03d", strings.Repeat(prefix, 60), i) }
	queue := func(i int) string { return name("q", i)[2:] } // with the pool's name as long as a label may be
	var tenants []any
	for i := range 64 {
		tenants = append(tenants, name("t", i))
	}
	most := map[string]any{
		"apiVersion": "pool.nvtopo.dev/v1alpha1", "kind": "ComputePool", "metadata": map[string]any{"name": "p"},
		"spec": map[string]any{
			"poolType": "gpu", "capacity": map[string]any{"total": int64(1000), "reserved": int64(0)},
			"quotas": listOf(64, func(i int) any {
				return map[string]any{"tenant": tenants[i], "limit": int64(100), "guaranteed": int64(10), "weight": int64(1)}
			}),
			"queues": listOf(16, func(i int) any {
				return map[string]any{"name": queue(i), "maxCapacity": int64(1000), "guaranteedCapacity": int64(62), "tenants": tenants}
			}),
		},
		"status": map[string]any{
			"totalCapacity": int64(1000), "reservedCapacity": int64(0), "allocatedCapacity": int64(0), "availableCapacity": int64(1000),
			"shares": listOf(1024, func(i int) any {
				return map[string]any{
					"tenant": tenants[i/16], "queue": queue(i % 16), "guaranteed": int64(0), "pinned": int64(0), "limit": int64(0),
					"used": int64(0), "borrowed": int64(0), "pending": int64(0),
				}
			}),
		},
	}
	for _, err := range objectValidator(t, v1alpha1.ComputePoolKind)(most) {
		t.Error(err)
	}
}

// TestPoolExamples: the examples of pools are valid. It judges them by the shipped schemas.
func TestPoolExamples(t *testing.T) {
	entries, err := manifests.FS.ReadDir(strings.TrimSuffix(poolExamples, "/"))
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, entry := range entries {
		if entry.Name() == "kustomization.yaml" {
			continue
		}
		text, err := manifests.FS.ReadFile(poolExamples + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			data, err := yaml.YAMLToJSONStrict([]byte(doc))
			if err != nil {
				t.Fatalf("%s: %v", entry.Name(), err)
			}
			var obj map[string]any
			if err := utiljson.Unmarshal(data, &obj); err != nil { // whole numbers stay whole
				t.Fatal(err)
			}
			judged++
			if of := kubernetesKind(fmt.Sprint(obj["kind"])); of != nil {
				if err := yaml.UnmarshalStrict([]byte(doc), of); err != nil {
					t.Errorf("%s: %v", entry.Name(), err)
				}
				continue
			}
			for _, err := range objectValidator(t, fmt.Sprint(obj["kind"]))(obj) {
				t.Errorf("%s: %v", entry.Name(), err)
			}
		}
	}
	if judged < 24 {
		t.Errorf("only %d examples", judged)
	}
}

// TestReferencePoolReserve: reference pools keep a reserve: what the reference set-ups show is what
// the docs advise.
func TestReferencePoolReserve(t *testing.T) {
	pools := 0
	for _, size := range []string{"small", "medium", "large"} {
		text, err := manifests.FS.ReadFile(poolExamples + "reference-" + size + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			pool := &v1alpha1.ComputePool{}
			if err := yaml.Unmarshal([]byte(doc), pool); err != nil {
				t.Fatal(err)
			}
			if pool.Kind != v1alpha1.ComputePoolKind {
				continue
			}
			pools++
			c := pool.Spec.Capacity
			if 10*c.Reserved < c.Total || 5*c.Reserved > c.Total {
				t.Errorf("%s, %s: %d of %d reserved, which is not 10 to 20 %%", size, pool.Name, c.Reserved, c.Total)
			}
		}
	}
	if pools != 7 {
		t.Errorf("%d pools, want 7", pools)
	}
}

// kubernetesKind is an object of a kind that examples have beside ours; nil for ours.
func kubernetesKind(kind string) any {
	switch kind {
	case "HorizontalPodAutoscaler":
		return &autoscalingv2.HorizontalPodAutoscaler{}
	case "CronJob":
		return &batchv1.CronJob{}
	case "ServiceAccount":
		return &v1.ServiceAccount{}
	case "Role":
		return &rbacv1.Role{}
	case "RoleBinding":
		return &rbacv1.RoleBinding{}
	}
	return nil
}

// TestAutoscalerBounds: the autoscaler stays within the job's bounds. The API server refuses a
// maximum below minReplicas, so that an autoscaler that went lower would be stuck.
func TestAutoscalerBounds(t *testing.T) {
	text, err := manifests.FS.ReadFile(poolExamples + "autoscaled.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	var job v1alpha1.ElasticJob
	var scaler autoscalingv2.HorizontalPodAutoscaler
	if err := errors.Join(yaml.UnmarshalStrict([]byte(documents[0]), &job), yaml.UnmarshalStrict([]byte(documents[1]), &scaler)); err != nil {
		t.Fatal(err)
	}
	if of := scaler.Spec.ScaleTargetRef; of.APIVersion != job.APIVersion || of.Kind != job.Kind || of.Name != job.Name {
		t.Errorf("the autoscaler scales %+v", of)
	}
	if *scaler.Spec.MinReplicas < job.Spec.Scaling.MinReplicas {
		t.Errorf("the autoscaler goes down to %d, the job only to %d", *scaler.Spec.MinReplicas, job.Spec.Scaling.MinReplicas)
	}
}

// TestNightWindowRole: the night window may scale one job and no more. Its role is no more than its
// command needs.
func TestNightWindowRole(t *testing.T) {
	text, err := manifests.FS.ReadFile(poolExamples + "night-window.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.Role
	var commands [][]string
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		switch {
		case strings.Contains(doc, "\nkind: Role\n"):
			err = yaml.UnmarshalStrict([]byte(doc), &role)
		case strings.Contains(doc, "\nkind: CronJob\n"):
			var c batchv1.CronJob
			err = yaml.UnmarshalStrict([]byte(doc), &c)
			commands = append(commands, c.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"elasticjobs"}, ResourceNames: []string{"elastic-training"}, Verbs: []string{"get"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"elasticjobs/scale"}, ResourceNames: []string{"elastic-training"}, Verbs: []string{"get", "patch", "update"}},
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	target := "elasticjobs.pool.nvtopo.dev/elastic-training"
	if diff := cmp.Diff([][]string{{"scale", target, "--replicas=4"}, {"scale", target, "--replicas=2"}}, commands); diff != "" {
		t.Errorf("commands (-want +got)\n%s", diff)
	}
}

// TestControllerMonitor: the controller is scraped. The ServiceMonitor finds the Service, and that
// the pods and their port.
func TestControllerMonitor(t *testing.T) {
	type monitor struct {
		Spec struct {
			Selector  struct{ MatchLabels map[string]string }
			Endpoints []struct{ Port, Scheme, BearerTokenFile string }
		}
	}
	documents := documentsOf(t, "pools/alerts/service-monitor.yaml")
	if len(documents) != 2 {
		t.Fatalf("%d documents, want a Service and a ServiceMonitor", len(documents))
	}
	var service v1.Service
	var scraped monitor
	if err := errors.Join(yaml.UnmarshalStrict([]byte(documents[0]), &service), yaml.Unmarshal([]byte(documents[1]), &scraped)); err != nil {
		t.Fatal(err)
	}
	pods := workloads(t)["nvtopo-pool-controller"]
	port := pods.spec.Containers[0].Ports[0]
	if diff := cmp.Diff(pods.meta.Labels, service.Spec.Selector); diff != "" {
		t.Errorf("the Service's pods (-pods +selector):\n%s", diff)
	}
	delete(service.Labels, release.PartOfLabel) // every object has it
	if diff := cmp.Diff(service.Labels, scraped.Spec.Selector.MatchLabels); diff != "" {
		t.Errorf("the ServiceMonitor's Service (-labels +selector):\n%s", diff)
	}
	want := []v1.ServicePort{{Name: port.Name, Port: port.ContainerPort, TargetPort: intstr.FromString(port.Name)}}
	if diff := cmp.Diff(want, service.Spec.Ports); diff != "" {
		t.Errorf("ports of the Service (-want +got):\n%s", diff)
	}
	if len(scraped.Spec.Endpoints) != 1 {
		t.Fatalf("%d endpoints, want 1", len(scraped.Spec.Endpoints))
	}
	if e := scraped.Spec.Endpoints[0]; e.Port != port.Name || e.Scheme != "https" || e.BearerTokenFile == "" {
		t.Errorf("scrapes %+v, want port %s over https with a token", e, port.Name)
	}
}

// documentsOf are the documents of a file of YAML.
func documentsOf(t *testing.T, name string) []string {
	t.Helper()
	text, err := manifests.Pools.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n---\n")
}
