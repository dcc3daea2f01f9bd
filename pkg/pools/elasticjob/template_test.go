// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// withTemplate returns an ElasticJob with a template in flow style.
func withTemplate(template string) string {
	return `
apiVersion: pool.nvtopo.dev/v1alpha1
kind: ElasticJob
metadata: {name: train, namespace: team-a}
spec:
  pool: pool
  scaling: {minReplicas: 2, maxReplicas: 4, gpuPerReplica: 8}
  template: ` + template
}

func TestTemplates(t *testing.T) {
	mig := func(p *v1alpha1.ComputePool) {
		p.Spec.Virtualization = &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyMIG, Profile: "all-3g.40gb"}
	}
	tests := map[string]struct {
		template string
		pool     func(*v1alpha1.ComputePool)
		want     []string // content of each fault, in order
	}{
		"devices are added":           {template: `{spec: {containers: [{name: a}]}}`},
		"devices that agree":          {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 8}}}]}}`},
		"devices as a string":         {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: "8"}}}]}}`},
		"devices of two containers":   {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 2}}}, {name: b, resources: {limits: {nvidia.com/gpu: 6}}}]}}`},
		"another vendor's":            {template: `{spec: {containers: [{name: a, resources: {limits: {amd.com/gpu: 8}}}]}}`},
		"too few devices":             {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 4}}}]}}`, want: []string{"spec.template.spec.containers: resources.limits of 4 devices, and spec.scaling.gpuPerReplica is 8"}},
		"devices of two vendors":      {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 4, amd.com/gpu: 4}}}]}}`, want: []string{"spec.template.spec: devices of 2 resources"}},
		"a request without a limit":   {template: `{spec: {containers: [{name: a, resources: {requests: {nvidia.com/gpu: 8}}}]}}`, want: []string{"spec.template.spec.containers[0].resources.requests[nvidia.com/gpu]"}},
		"half a device":               {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 500m}}}]}}`, want: []string{"spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: 500m: want a whole number"}},
		"an init container with more": {template: `{spec: {initContainers: [{name: i, resources: {limits: {nvidia.com/gpu: 9}}}], containers: [{name: a, resources: {limits: {nvidia.com/gpu: 8}}}]}}`, want: []string{"spec.template.spec.initContainers[0].resources.limits: 9 devices"}},
		"devices of init containers only": {
			template: `{spec: {initContainers: [{name: i, resources: {limits: {nvidia.com/gpu: 8}}}], containers: [{name: a}]}}`,
			want:     []string{"resources.limits of 0 devices"},
		},
		"no containers":               {template: `{spec: {}}`, want: []string{"spec.template.spec.containers: there are none"}},
		"nothing at all":              {template: `{}`, want: []string{"spec.template.spec.containers: there are none"}},
		"an unknown field":            {template: `{spec: {containers: [{name: a, imagge: x}]}}`, want: []string{`unknown field "spec.containers[0].imagge"`}},
		"two unknown fields":          {template: `{speck: 1, spec: {containers: [{name: a}], foo: 1}}`, want: []string{`unknown field "spec.foo"`, `unknown field "speck"`}},
		"a field of another type":     {template: `{spec: {containers: everything}}`, want: []string{"spec.template: json: cannot unmarshal string into Go struct field"}},
		"a quantity that is none":     {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: lots}}}]}}`, want: []string{"spec.template: quantities must match"}},
		"pods that start again":       {template: `{spec: {restartPolicy: Always, containers: [{name: a}]}}`, want: []string{"spec.template.spec.restartPolicy: Always"}},
		"pods that end after an hour": {template: `{spec: {terminationGracePeriodSeconds: 3600, containers: [{name: a}]}}`, want: []string{"spec.template.spec.terminationGracePeriodSeconds: 3600: at most 600 in ComputePool pool"}},
		"one in a pool that allows it": {
			template: `{spec: {terminationGracePeriodSeconds: 3600, containers: [{name: a}]}}`,
			pool:     func(p *v1alpha1.ComputePool) { p.Spec.MaxTerminationGracePeriodSeconds = 3600 },
		},
		"pods of another gang":       {template: `{metadata: {annotations: {nvtopo.dev/gang: mine}}, spec: {containers: [{name: a}]}}`, want: []string{"spec.template.metadata: it makes the pods members of gang /mine"}},
		"pods of a PodGroup":         {template: `{metadata: {labels: {scheduling.x-k8s.io/pod-group: mine}}, spec: {containers: [{name: a}]}}`, want: []string{"members of PodGroup /mine"}},
		"a priority of pods":         {template: `{spec: {priorityClassName: system-cluster-critical, containers: [{name: a}]}}`, want: []string{"spec.template.spec.priorityClassName: system-cluster-critical"}},
		"the priority of extras":     {template: `{spec: {priorityClassName: nvtopo-pool-extra, containers: [{name: a}]}}`},
		"keys of Kueue":              {template: `{metadata: {labels: {kueue.x-k8s.io/managed: "true"}, annotations: {kueue.x-k8s.io/role-hash: x}}, spec: {containers: [{name: a}]}}`, want: []string{"metadata.labels: kueue.x-k8s.io/managed", "metadata.annotations: kueue.x-k8s.io/role-hash"}},
		"keys without effect":        {template: `{metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: rack}}, spec: {containers: [{name: a}]}}`},
		"whole GPUs of a MIG pool":   {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 8}}}]}}`, pool: mig, want: []string{"spec.template: it asks for nvidia.com/gpu, and pool pool gives out parts"}},
		"slices of a MIG pool":       {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/mig-3g.40gb: 8}}}]}}`, pool: mig},
		"no slices of a MIG pool":    {template: `{spec: {containers: [{name: a}]}}`, pool: mig, want: []string{"resources.limits names no slice"}},
		"fewer slices of a MIG pool": {template: `{spec: {containers: [{name: a, resources: {limits: {nvidia.com/mig-3g.40gb: 2}}}]}}`, pool: mig, want: []string{"of 2 devices"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ej, faults, err := decode(read(t, withTemplate(tc.template)))
			if err != nil {
				t.Fatal(err)
			}
			if tc.pool == nil {
				tc.pool = func(*v1alpha1.ComputePool) {}
			}
			if len(faults) == 0 {
				faults = complete(ej, newPool(tc.pool))
			}
			if len(faults) != len(tc.want) {
				t.Fatalf("got %q, want %q", faults, tc.want)
			}
			for i, want := range tc.want {
				if !strings.Contains(faults[i], want) {
					t.Errorf("got %q, want %q", faults[i], want)
				}
			}
		})
	}
}

// TestBadTemplate: a job with an invalid template is read nevertheless: its status states
// the faults.
func TestBadTemplate(t *testing.T) {
	ej, faults, err := decode(read(t, withTemplate(`{spec: {containers: 3}}`)))
	if err != nil || len(faults) == 0 {
		t.Fatalf("faults %q, %v", faults, err)
	}
	if ej.Name != "train" || ej.Spec.Scaling.MaxReplicas != 4 {
		t.Errorf("got %+v", ej)
	}
}

func TestTemplateValues(t *testing.T) {
	tests := map[string]struct {
		pool func(*v1alpha1.ComputePool)
		want string
	}{
		"GPUs":                      {pool: func(p *v1alpha1.ComputePool) { p.Spec.PoolType = v1alpha1.PoolGPU }, want: "nvidia.com/gpu"},
		"NPUs":                      {pool: func(p *v1alpha1.ComputePool) { p.Spec.PoolType = v1alpha1.PoolNPU }, want: "huawei.com/Ascend910B"},
		"either":                    {pool: func(p *v1alpha1.ComputePool) { p.Spec.PoolType = v1alpha1.PoolMixed }, want: "nvidia.com/gpu"},
		"what the pool says counts": {pool: func(p *v1alpha1.ComputePool) { p.Spec.Resources = []string{"example.com/npu"} }, want: "example.com/npu"},
		"turns": {pool: func(p *v1alpha1.ComputePool) {
			p.Spec.Virtualization = &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyTimeSlicing, Replicas: 4}
		}, want: "nvidia.com/gpu.shared"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ej := newJob(func(ej *v1alpha1.ElasticJob) { ej.Spec.Template.Spec.RestartPolicy = "" })
			if faults := complete(ej, newPool(tc.pool)); len(faults) > 0 {
				t.Fatal(faults)
			}
			want := v1.ResourceList{v1.ResourceName(tc.want): resource.MustParse("8")}
			if diff := cmp.Diff(want, ej.Spec.Template.Spec.Containers[0].Resources.Limits); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got := ej.Spec.Template.Spec.RestartPolicy; got != v1.RestartPolicyNever {
				t.Errorf("restartPolicy %s", got)
			}
		})
	}
}
