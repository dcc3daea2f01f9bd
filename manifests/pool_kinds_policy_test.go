// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"maps"
	"testing"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// containers are those of a pod, one of which asks for a resource.
func containers(field, resource string) map[string]any {
	return map[string]any{field: []any{
		map[string]any{"name": "a"},
		map[string]any{"name": "b", "resources": map[string]any{"limits": map[string]any{resource: "1", "cpu": "1"}}},
	}}
}

// with is a spec with the fields of another.
func with(spec, more map[string]any) map[string]any {
	out := maps.Clone(spec)
	maps.Copy(out, more)
	return out
}

// controlledBy is metadata with a controller of a kind.
func controlledBy(kind string) map[string]any {
	return map[string]any{"ownerReferences": []any{map[string]any{"kind": kind, "name": "y", "uid": kind, "controller": true}}}
}

func TestPoliciesOfStarts(t *testing.T) {
	gpu := containers("containers", "nvidia.com/gpu")
	gate := map[string]any{"schedulingGates": []any{map[string]any{"name": "kueue.x-k8s.io/admission"}}}
	other := map[string]any{"schedulingGates": []any{map[string]any{"name": "example.com/gate"}}}
	pod := func(meta, spec map[string]any) request {
		return request{resource: "pods", object: thing(meta, "spec", spec)}
	}
	by := func(r request, may ...string) request {
		r.may = may
		return r
	}
	checkPolicy(t, "nvtopo-pool-starts", "Kueue has put no gate on this pod", map[string]policyCase{
		"a pod with Kueue's gate":                     {pod(nil, with(gpu, gate)), true},
		"a pod without a gate":                        {pod(nil, gpu), false},
		"a pod with another's gate":                   {pod(nil, with(gpu, other)), false},
		"a pod of a ReplicaSet without a gate":        {pod(controlledBy("ReplicaSet"), gpu), false},
		"one by who lets jobs in":                     {by(pod(controlledBy("ReplicaSet"), gpu), mayAdmit...), false},
		"one by an administrator":                     {by(pod(nil, gpu), mayStart...), true},
		"a pod of a JobSet":                           {pod(controlledBy("JobSet"), gpu), false},
		"a pod of a Job, which another policy judges": {pod(controlledBy("Job"), gpu), true},
		"a pod without devices":                       {pod(controlledBy("ReplicaSet"), containers("containers", "memory")), true},
		"a pod with a device for its init container":  {pod(nil, containers("initContainers", "amd.com/gpu")), false},
		"a pod with a slice":                          {pod(nil, containers("containers", "nvidia.com/mig-1g.10gb")), false},
		"a pod with a resource of Kubernetes":         {pod(nil, containers("containers", "attachable-volumes.kubernetes.io/x")), true},
	})
	checkPolicy(t, "nvtopo-pool-starts", "Kueue has not suspended this JobSet", map[string]policyCase{
		"a JobSet that Kueue has suspended": {request{resource: "jobsets", object: thing(nil, "spec", spec("suspend", true))}, true},
		"a JobSet that starts":              {request{resource: "jobsets", object: thing(nil, "", nil)}, false},
		"one by who lets jobs in":           {request{resource: "jobsets", object: thing(nil, "", nil), may: mayAdmit}, false},
		"one by an administrator":           {request{resource: "jobsets", object: thing(nil, "", nil), may: mayStart}, true},
		"a JobSet of a JobSet that starts":  {request{resource: "jobsets", object: thing(controlledBy("JobSet"), "", nil)}, false},
	})
}

func TestPoliciesOfJobSets(t *testing.T) {
	replicated := func(replicas int64, class string) map[string]any {
		template := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"priorityClassName": class}}}}
		return map[string]any{"replicatedJobs": []any{map[string]any{"name": "w", "replicas": replicas, "template": template}}}
	}
	suspended := spec("suspend", true)
	waits, runs := thing(nil, "spec", with(replicated(2, ""), suspended)), thing(nil, "spec", replicated(2, ""))
	classed := func(label string) map[string]any {
		return thing(labelled(kueue.LabelPriorityClass, label), "spec", with(replicated(2, ""), suspended))
	}
	const prebuilt = "kueue.x-k8s.io/prebuilt-workload-name"
	critical := thing(nil, "spec", with(replicated(2, "system-cluster-critical"), suspended))
	marked := func(key string) map[string]any {
		pods := map[string]any{"metadata": map[string]any{"labels": map[string]any{key: "x"}}}
		job := map[string]any{"name": "w", "template": map[string]any{"spec": map[string]any{"template": pods}}}
		return thing(nil, "spec", with(suspended, map[string]any{"replicatedJobs": []any{job}}))
	}
	sized := func(pods int64) map[string]any {
		return thing(controlledBy("JobSet"), "spec", map[string]any{"parallelism": pods, "completions": pods})
	}
	tests := map[string]struct {
		request request
		want    string
	}{
		"a JobSet":                                 {request{resource: "jobsets", object: waits}, ""},
		"one that somebody starts":                 {request{resource: "jobsets", object: runs, old: waits}, "Kueue starts the JobSets of tenants"},
		"one that Kueue starts":                    {request{resource: "jobsets", object: runs, old: waits, may: mayAdmit}, ""},
		"one that waits and changes":               {request{resource: "jobsets", object: thing(nil, "spec", with(replicated(6, ""), suspended)), old: waits}, ""},
		"one that runs and grows":                  {request{resource: "jobsets", object: thing(nil, "spec", replicated(6, "")), old: runs}, "cannot be changed while the JobSet runs"},
		"one that grows as it is suspended":        {request{resource: "jobsets", object: thing(nil, "spec", with(replicated(6, ""), suspended)), old: runs}, "cannot be changed while the JobSet runs"},
		"one that runs and gets a label":           {request{resource: "jobsets", object: thing(labelled("a", "b"), "spec", replicated(2, "")), old: runs}, ""},
		"what it says of its pods":                 {request{resource: "jobsets", subresource: "status", object: runs, old: runs}, "only the JobSet controller writes it"},
		"by its controller":                        {request{resource: "jobsets", subresource: "status", object: runs, old: runs, may: mayAdmit}, ""},
		"one of the protected class":               {request{resource: "jobsets", object: classed(names.ProtectedClass)}, "only ElasticJobs can be of the class nvtopo-protected"},
		"one with a priority of pods":              {request{resource: "jobsets", object: critical}, "would evict others' by it"},
		"one with the least priority of pods":      {request{resource: "jobsets", object: thing(nil, "spec", with(replicated(2, "nvtopo-pool-extra"), suspended))}, ""},
		"one that had it before the policy":        {request{resource: "jobsets", object: critical, old: critical}, ""},
		"one that waits and gets it":               {request{resource: "jobsets", object: critical, old: waits}, "would evict others' by it"},
		"one with a class of Kueue":                {request{resource: "jobsets", object: classed("nvtopo-p5")}, ""},
		"one that names its Workload":              {request{resource: "jobsets", object: thing(labelled(prebuilt, "w"), "spec", suspended)}, prebuilt + ": only Kueue writes this key"},
		"one that had named it":                    {request{resource: "jobsets", object: thing(labelled(prebuilt, "w"), "spec", suspended), old: thing(labelled(prebuilt, "w"), "spec", suspended)}, ""},
		"one that is said to be elastic":           {request{resource: "jobsets", object: thing(map[string]any{"annotations": map[string]any{"kueue.x-k8s.io/elastic-job": "true"}}, "spec", suspended)}, "only Kueue writes this key"},
		"one whose pods say that they are a group": {request{resource: "jobsets", object: marked("kueue.x-k8s.io/pod-group-name")}, "in the templates of a JobSet"},
		"one whose pods ask for a rack":            {request{resource: "jobsets", object: marked("kueue.x-k8s.io/podset-required-topology")}, ""},
		"one whose templates Kueue has written":    {request{resource: "jobsets", object: marked("kueue.x-k8s.io/podset"), old: marked("kueue.x-k8s.io/podset")}, ""},
		"one that something keeps":                 {request{resource: "jobsets", object: thing(map[string]any{"finalizers": []any{"a/b"}}, "spec", suspended)}, "would run on without quota"},
		"one that something kept before":           {request{resource: "jobsets", object: thing(map[string]any{"finalizers": []any{"a/b"}}, "spec", suspended), old: thing(map[string]any{"finalizers": []any{"a/b"}}, "spec", suspended)}, ""},
		"a Job of a JobSet that grows":             {request{resource: "jobs", object: sized(6), old: sized(1)}, "since Kueue has counted the JobSet"},
		"a Job of a JobSet that changes otherwise": {request{resource: "jobs", object: sized(1), old: sized(1)}, ""},
	}
	policies := compiledPoolPolicies(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { checkAnswer(t, answer(t, policies, tc.request, "nvtopo-pool-jobsets"), tc.want) })
	}
}

func TestPoliciesOfDeployments(t *testing.T) {
	template := func(resource string) map[string]any {
		return map[string]any{"template": map[string]any{"spec": containers("containers", resource)}}
	}
	gpu, cpu := template("nvidia.com/gpu"), template("memory")
	queued := func(queue string) map[string]any { return labelled(kueue.LabelQueue, queue) }
	ending := with(queued("default"), map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"})
	checkPolicy(t, "nvtopo-pool-deployments", "needs kueue.x-k8s.io/queue-name on itself", map[string]policyCase{
		"a Deployment in a pool's queue":              {request{resource: "deployments", object: thing(queued("training"), "spec", gpu)}, true},
		"one that Kueue has put into the default one": {request{resource: "deployments", object: thing(queued("default"), "spec", gpu)}, false},
		"one without a queue":                         {request{resource: "deployments", object: thing(nil, "spec", gpu)}, false},
		"one that loses its queue":                    {request{resource: "deployments", object: thing(queued("default"), "spec", gpu), old: thing(queued("training"), "spec", gpu)}, false},
		"one without devices":                         {request{resource: "deployments", object: thing(queued("default"), "spec", cpu)}, true},
		"one that is being deleted":                   {request{resource: "deployments", object: thing(ending, "spec", gpu), old: thing(ending, "spec", gpu)}, true},
	})
}
