// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"maps"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// noted is metadata with annotations, given as key, value, key, value.
func noted(pairs ...string) map[string]any {
	return map[string]any{"annotations": labelled(pairs...)["labels"]}
}

// controlled is metadata with a controller of such a kind, beside other metadata.
func controlled(kind, uid string, more map[string]any) map[string]any {
	out := map[string]any{"ownerReferences": []any{map[string]any{"kind": kind, "name": "y", "uid": uid, "controller": true}}}
	maps.Copy(out, more)
	return out
}

func TestPoliciesOfKeys(t *testing.T) {
	const group, total, hash = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count", "kueue.x-k8s.io/role-hash"
	const managed, later = "kueue.x-k8s.io/managed", "kueue.x-k8s.io/of-a-later-release"
	const groups, only = "Kueue believes a pod group", "only Kueue writes this"
	const stays, keeps = "metadata.ownerReferences: the pod of a tenant's job stays", "keep the pod with its job"
	bare, queued := thing(nil, "", nil), thing(labelled(kueue.LabelQueue, "q", kueue.LabelPriorityClass, "nvtopo-p5"), "", nil)
	counted := thing(labelled(managed, "true", kueue.LabelQueue, "q"), "", nil)
	template := func(meta map[string]any) map[string]any {
		return thing(nil, "spec", spec("template", map[string]any{"metadata": meta}))
	}
	finalized := func(names ...any) map[string]any { return thing(map[string]any{"finalizers": names}, "", nil) }
	const uid = batchv1.ControllerUidLabel
	member := thing(controlled("Job", "1", labelled(uid, "1")), "", nil)
	collector := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:generic-garbage-collector"}
	tests := map[string]struct {
		request request
		want    string
	}{
		"a pod as Kueue's webhook leaves it":       {request{resource: "pods", object: thing(labelled(managed, "true", kueue.LabelQueue, "q"), "", nil)}, ""},
		"a pod of a group":                         {request{resource: "pods", object: thing(labelled(group, "g"), "", nil)}, groups},
		"a group by an annotation":                 {request{resource: "pods", object: thing(noted(group, "g"), "", nil)}, groups},
		"a pod that says how many a group has":     {request{resource: "pods", object: thing(noted(total, "3"), "", nil)}, groups},
		"a pod that joins a group":                 {request{resource: "pods", object: thing(labelled(managed, "true", kueue.LabelQueue, "q", group, "g"), "", nil), old: counted}, groups},
		"a pod of a group by who may":              {request{resource: "pods", object: thing(labelled(group, "g"), "", nil), may: mayAdmit}, ""},
		"a job whose template is of a group":       {request{resource: "jobs", object: template(labelled(group, "g"))}, groups},
		"a pod with a hash":                        {request{resource: "pods", object: thing(noted(hash, "x"), "", nil)}, ""},
		"a pod that changes its hash":              {request{resource: "pods", object: thing(noted(hash, "y"), "", nil), old: thing(noted(hash, "x"), "", nil)}, only},
		"a job whose template has a hash":          {request{resource: "jobs", object: template(noted(hash, "x"))}, only},
		"a pod that is Kueue's no more":            {request{resource: "pods", object: queued, old: counted}, "metadata: kueue.x-k8s.io/managed: only Kueue"},
		"by another door":                          {request{resource: "pods", subresource: "status", object: queued, old: counted}, only},
		"a pod that becomes Kueue's":               {request{resource: "pods", object: counted, old: bare}, only},
		"a pod that nothing becomes of":            {request{resource: "pods", object: counted, old: counted}, ""},
		"a Binding that brings a group":            {request{resource: "pods", subresource: "binding", object: map[string]any{"metadata": labelled(group, "g"), "target": map[string]any{}}}, groups},
		"a Binding with an annotation":             {request{resource: "bindings", object: map[string]any{"metadata": noted(later, "x")}}, only},
		"a key of a later release":                 {request{resource: "jobs", object: thing(noted(later, "x"), "", nil)}, only},
		"an elastic job":                           {request{resource: "jobs", object: thing(noted("kueue.x-k8s.io/elastic-job", "true"), "", nil)}, only},
		"a job with a Workload of its own":         {request{resource: "jobs", object: thing(labelled("kueue.x-k8s.io/prebuilt-workload-name", "w"), "", nil)}, only},
		"a job that says that it stops":            {request{resource: "jobs", object: thing(noted("kueue.x-k8s.io/stopping", "true"), "", nil), old: bare}, only},
		"a job with a queue and a priority":        {request{resource: "jobs", object: queued}, ""},
		"a job that changes both":                  {request{resource: "jobs", object: thing(labelled(kueue.LabelQueue, "r"), "", nil), old: queued}, ""},
		"a job that may be made smaller":           {request{resource: "jobs", object: thing(noted("kueue.x-k8s.io/job-min-parallelism", "1"), "", nil)}, ""},
		"a job that asks for a rack of Kueue":      {request{resource: "jobs", object: template(noted("kueue.x-k8s.io/podset-required-topology", "rack"))}, ""},
		"a job that runs and gets another label":   {request{resource: "jobs", object: thing(labelled("a", "b"), "spec", spec("template", map[string]any{"metadata": labelled(kueue.LabelPodSet, "main")})), old: template(labelled(kueue.LabelPodSet, "main"))}, ""},
		"a Workload with a boost":                  {request{resource: "workloads", object: thing(noted("kueue.x-k8s.io/priority-boost", "9"), "", nil), old: bare}, only},
		"keys of others":                           {request{resource: "pods", object: thing(labelled("example.com/a", "b"), "", nil), old: bare}, ""},
		"a pod that loses Kueue's finalizer":       {request{resource: "pods", object: bare, old: finalized(managed)}, "metadata.finalizers: kueue.x-k8s.io/managed"},
		"one that Kueue lets go":                   {request{resource: "pods", object: bare, old: finalized(managed), may: mayAdmit}, ""},
		"another's finalizer":                      {request{resource: "pods", object: finalized(managed), old: finalized(managed, "a/b")}, ""},
		"a Workload that loses it":                 {request{resource: "workloads", object: bare, old: finalized("kueue.x-k8s.io/resource-in-use")}, "metadata.finalizers"},
		"a pod that leaves its job":                {request{resource: "pods", object: thing(labelled(uid, "1"), "", nil), old: member}, stays},
		"a pod that another job gets":              {request{resource: "pods", object: thing(controlled("Job", "2", labelled(uid, "1")), "", nil), old: member}, stays},
		"a pod that the Job controller lets go":    {request{resource: "pods", object: thing(labelled(uid, "1"), "", nil), old: member, may: mayAdmit}, ""},
		"a pod that the garbage collector leaves":  {request{resource: "pods", object: thing(labelled(uid, "1"), "", nil), old: member, user: collector}, ""},
		"a pod that leaves its ReplicaSet":         {request{resource: "pods", object: bare, old: thing(controlled("ReplicaSet", "1", nil), "", nil)}, ""},
		"a pod whose job does not know it":         {request{resource: "pods", object: thing(controlled("Job", "1", nil), "", nil), old: member}, keeps},
		"a pod of a job that gets another label":   {request{resource: "pods", object: thing(controlled("Job", "1", labelled(uid, "1", "a", "b")), "", nil), old: member}, ""},
		"a pod of no job that loses such a label":  {request{resource: "pods", object: bare, old: thing(labelled(uid, "1"), "", nil)}, ""},
		"a pod whose job knows it no more by name": {request{resource: "pods", object: thing(controlled("Job", "1", labelled(uid, "1", "job-name", "b")), "", nil), old: member}, keeps},
	}
	policies := compiledPoolPolicies(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { checkAnswer(t, answer(t, policies, tc.request, "nvtopo-pool-keys"), tc.want) })
	}
}

func TestPoliciesOfSizes(t *testing.T) {
	sized := func(suspend bool, parallelism int64, completions any) map[string]any {
		fields := map[string]any{"suspend": suspend, "parallelism": parallelism}
		if completions != nil {
			fields["completions"] = completions
		}
		return thing(nil, "spec", fields)
	}
	const runs, never, pods = "the job runs with quota for", "so many are never needed", "the pods of a tenant's job go with it"
	const none = "metadata.finalizers: a tenant's job has none"
	finalized := func(names ...any) map[string]any {
		return thing(map[string]any{"finalizers": names}, "spec", spec("suspend", true))
	}
	deleted := func(policy metav1.DeletionPropagation) runtime.Object {
		return &metav1.DeleteOptions{PropagationPolicy: &policy}
	}
	tests := map[string]struct {
		request request
		want    string
	}{
		"a job":                                   {request{resource: "jobs", object: sized(true, 14, int64(14))}, ""},
		"a job of one pod":                        {request{resource: "jobs", object: thing(nil, "spec", spec("suspend", true))}, ""},
		"a job without completions":               {request{resource: "jobs", object: sized(true, 14, nil)}, ""},
		"fewer pods at a time than in all":        {request{resource: "jobs", object: sized(true, 2, int64(14))}, ""},
		"more pods at a time than in all":         {request{resource: "jobs", object: sized(true, 8, int64(4))}, "spec.parallelism: 8 pods at a time, and spec.completions is 4: " + never},
		"one that had it before":                  {request{resource: "jobs", object: sized(false, 8, int64(4)), old: thing(map[string]any{"finalizers": []any{"a/b"}}, "spec", map[string]any{"parallelism": int64(8), "completions": int64(4)})}, ""},
		"a running job that becomes larger":       {request{resource: "jobs", object: sized(false, 14, nil), old: sized(false, 1, nil)}, "14 pods at a time, and " + runs + " 1"},
		"by another door":                         {request{resource: "jobs", subresource: "status", object: sized(false, 14, nil), old: sized(false, 1, nil)}, runs},
		"one by its completions":                  {request{resource: "jobs", object: sized(false, 14, int64(14)), old: sized(false, 14, int64(1))}, runs},
		"one that has more to do":                 {request{resource: "jobs", object: sized(false, 2, int64(14)), old: sized(false, 2, int64(4))}, ""},
		"one by Kueue":                            {request{resource: "jobs", object: sized(false, 14, nil), old: sized(false, 1, nil), may: mayAdmit}, ""},
		"one that is suspended by the same":       {request{resource: "jobs", object: sized(true, 14, nil), old: sized(false, 1, nil)}, ""},
		"a job that waits and becomes larger":     {request{resource: "jobs", object: sized(true, 14, nil), old: sized(true, 1, nil)}, ""},
		"a running job that becomes smaller":      {request{resource: "jobs", object: sized(false, 1, nil), old: sized(false, 14, nil)}, ""},
		"a selector of one's own":                 {request{resource: "jobs", object: thing(nil, "spec", map[string]any{"suspend": true, "manualSelector": true})}, "spec.manualSelector"},
		"a job that is deleted":                   {request{resource: "jobs", old: sized(false, 1, nil), options: deleted(metav1.DeletePropagationBackground)}, ""},
		"a job that is deleted without its pods":  {request{resource: "jobs", old: sized(false, 1, nil), options: deleted(metav1.DeletePropagationOrphan)}, pods},
		"in the old way":                          {request{resource: "jobs", old: sized(false, 1, nil), options: &metav1.DeleteOptions{OrphanDependents: new(true)}}, pods},
		"by who may":                              {request{resource: "jobs", old: sized(false, 1, nil), options: deleted(metav1.DeletePropagationOrphan), may: mayAdmit}, ""},
		"a job that is deleted, and nothing said": {request{resource: "jobs", old: sized(false, 1, nil), options: &metav1.DeleteOptions{}}, pods},
		"in the old way, with its pods":           {request{resource: "jobs", old: sized(false, 1, nil), options: &metav1.DeleteOptions{OrphanDependents: new(false)}}, ""},
		"with its pods first":                     {request{resource: "jobs", old: sized(false, 1, nil), options: deleted(metav1.DeletePropagationForeground)}, ""},
		"a job that will be deleted without them": {request{resource: "jobs", object: finalized("orphan"), old: thing(nil, "spec", spec("suspend", true))}, none},
		"a job that will stay when it is deleted": {request{resource: "jobs", object: finalized("a/b", "c/d"), old: finalized("a/b")}, none},
		"a job that is made so":                   {request{resource: "jobs", object: finalized("a/b")}, none},
		"a job that is made so by who may":        {request{resource: "jobs", object: finalized("a/b"), may: mayAdmit}, ""},
		"a job that had one, and loses another":   {request{resource: "jobs", object: finalized("a/b"), old: finalized("a/b", "c/d")}, ""},
	}
	policies := compiledPoolPolicies(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { checkAnswer(t, answer(t, policies, tc.request, "nvtopo-pool-sizes"), tc.want) })
	}
}

func TestPoliciesOfWorkloads(t *testing.T) {
	workload := func(fields map[string]any, meta map[string]any) map[string]any {
		all := map[string]any{"queueName": "q", "podSets": []any{map[string]any{"name": "main", "count": int64(1)}}}
		maps.Copy(all, fields)
		return thing(meta, "spec", all)
	}
	plain := workload(nil, nil)
	checkPolicy(t, "nvtopo-pool-workloads", "a tenant changes spec.active alone", map[string]policyCase{
		"a Workload of a tenant's own":          {request{resource: "workloads", object: plain}, false},
		"one by Kueue":                          {request{resource: "workloads", object: plain, may: mayAdmit}, true},
		"one that is made inactive":             {request{resource: "workloads", object: workload(spec("active", false), nil), old: plain}, true},
		"one that is active again":              {request{resource: "workloads", object: plain, old: workload(spec("active", false), nil)}, true},
		"one that counts less":                  {request{resource: "workloads", object: workload(spec("podSets", []any{}), nil), old: plain}, false},
		"one of a higher priority":              {request{resource: "workloads", object: workload(spec("priority", int64(9)), nil), old: plain}, false},
		"one that loses its priority":           {request{resource: "workloads", object: plain, old: workload(spec("priority", int64(-9)), nil)}, false},
		"one in another queue":                  {request{resource: "workloads", object: workload(spec("queueName", "r"), nil), old: plain}, false},
		"one that another job gets":             {request{resource: "workloads", object: workload(nil, controlled("Job", "2", nil)), old: workload(nil, controlled("Job", "1", nil))}, false},
		"one that loses its job":                {request{resource: "workloads", object: plain, old: workload(nil, controlled("Job", "1", nil))}, true},
		"one that changes otherwise":            {request{resource: "workloads", object: workload(nil, labelled("a", "b")), old: plain}, true},
		"a priority by Kueue, and it is active": {request{resource: "workloads", object: workload(spec("priority", int64(9)), nil), old: plain, may: mayAdmit}, true},
	})
}

func TestPoliciesOfDefaults(t *testing.T) {
	limits := func(field string, resources map[string]any) map[string]any {
		return thing(nil, "spec", spec("limits", []any{map[string]any{"type": "Container", "max": map[string]any{"nvidia.com/gpu": "8"}, field: resources}}))
	}
	gpus, cpus := map[string]any{"nvidia.com/gpu": "8"}, map[string]any{"cpu": "8", "memory": "1Gi"}
	checkPolicy(t, "nvtopo-pool-defaults", "spec.limits: nvidia.com/gpu", map[string]policyCase{
		"devices by default":             {request{resource: "limitranges", object: limits("default", gpus)}, false},
		"requests of devices":            {request{resource: "limitranges", object: limits("defaultRequest", gpus), old: limits("default", cpus)}, false},
		"devices by who may":             {request{resource: "limitranges", object: limits("default", gpus), may: mayAdmit}, true},
		"CPUs by default":                {request{resource: "limitranges", object: limits("default", cpus)}, true},
		"a limit and nothing by default": {request{resource: "limitranges", object: limits("min", gpus)}, true},
	})
}

func TestPoliciesOfPriorities(t *testing.T) {
	class := func(name string) map[string]any { return map[string]any{"priorityClassName": name} }
	pods := func(name string) map[string]any { return map[string]any{"spec": class(name)} }
	of := func(name string) map[string]any { return thing(nil, "spec", spec("template", pods(name))) }
	cron := func(name string) map[string]any {
		return thing(nil, "spec", spec("jobTemplate", map[string]any{"spec": map[string]any{"template": pods(name)}}))
	}
	labelled := thing(labelled(kueue.LabelPriorityClass, "nvtopo-p5"), "spec", spec("template", pods("system-cluster-critical")))
	checkPolicy(t, "nvtopo-pool-priorities", "would evict others' by it", map[string]policyCase{
		"a job without a class":                 {request{resource: "jobs", object: thing(nil, "", nil)}, true},
		"a job with a class of pods":            {request{resource: "jobs", object: of("system-cluster-critical")}, false},
		"a job with one of Kueue as well":       {request{resource: "jobs", object: labelled}, false},
		"a job with the class of extras":        {request{resource: "jobs", object: of("nvtopo-pool-extra")}, true},
		"a job by who may":                      {request{resource: "jobs", object: of("high"), may: mayAdmit}, true},
		"a job that had one before":             {request{resource: "jobs", object: of("high"), old: of("high")}, true},
		"a Deployment with a class":             {request{resource: "deployments", object: of("high")}, false},
		"a Deployment that gets one":            {request{resource: "deployments", object: of("high"), old: of("")}, false},
		"a Deployment that loses one":           {request{resource: "deployments", object: of(""), old: of("high")}, true},
		"a CronJob with a class":                {request{resource: "cronjobs", object: cron("high")}, false},
		"a CronJob that had one before":         {request{resource: "cronjobs", object: cron("high"), old: cron("high")}, true},
		"a PodTemplate with a class":            {request{resource: "podtemplates", object: map[string]any{"metadata": map[string]any{"name": "x"}, "template": pods("high")}}, false},
		"a PodTemplate with the one of extras":  {request{resource: "podtemplates", object: map[string]any{"metadata": map[string]any{"name": "x"}, "template": pods("nvtopo-pool-extra")}}, true},
		"a StatefulSet of a class that changes": {request{resource: "statefulsets", object: of("higher"), old: of("high")}, false},
	})
	param := func(name string, more map[string]any) map[string]any {
		out := map[string]any{"metadata": map[string]any{"name": name}, "value": int64(1000)}
		maps.Copy(out, more)
		return out
	}
	high, byDefault := param("high", nil), param("high", map[string]any{"globalDefault": true})
	pod := thing(nil, "spec", class("high"))
	checkPolicy(t, "nvtopo-pool-pod-priorities", "spec.priorityClassName: high: a pod of a tenant would evict others by it", map[string]policyCase{
		"a pod with a class":                      {request{resource: "pods", object: pod, params: high}, false},
		"asked about another class":               {request{resource: "pods", object: pod, params: param("low", nil)}, true},
		"a pod with the cluster's default":        {request{resource: "pods", object: pod, params: byDefault}, true},
		"a pod without a class":                   {request{resource: "pods", object: thing(nil, "", nil), params: high}, true},
		"a pod with the class of extras":          {request{resource: "pods", object: thing(nil, "spec", class("nvtopo-pool-extra")), params: param("nvtopo-pool-extra", nil)}, true},
		"a pod of a Job, by the Job controller":   {request{resource: "pods", object: pod, params: high, may: mayAdmit}, true},
		"a pod by who may something else":         {request{resource: "pods", object: pod, params: high, may: mayProtect}, false},
		"a pod with a name that begins like that": {request{resource: "pods", object: thing(nil, "spec", class("higher")), params: high}, true},
	})
}
