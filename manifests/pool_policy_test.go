// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"maps"
	"testing"

	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/nvtopo/nvtopo/manifests"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// The permissions that the policies of pools ask for. The roles with them are in pools/rbac.yaml.
var (
	mayAssign  = []string{"assign tenants"}
	mayProtect = []string{"protect quotas"}
	mayAdmit   = []string{"admit quotas"}
	mayWrite   = []string{"write quotas"}
	mayBill    = []string{"write accounts"}
	mayBypass  = []string{"bypass computepools"}
)

func compiledPoolPolicies(t *testing.T) map[string]validating.Validator {
	t.Helper()
	list, err := manifests.PoolPolicies()
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := manifests.PoolPolicyBindings()
	if err != nil {
		t.Fatal(err)
	}
	return compiledList(t, list, bindings, 14)
}

// thing is an object of a tenant's namespace with a part of its metadata and one field.
func thing(meta map[string]any, field string, value any) map[string]any {
	all := map[string]any{"name": "x", "namespace": "team-a"}
	maps.Copy(all, meta)
	out := map[string]any{"metadata": all, "spec": map[string]any{}}
	if field != "" {
		out[field] = value
	}
	return out
}

// labelled is metadata with labels, given as key, value, key, value.
func labelled(pairs ...string) map[string]any {
	out := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return map[string]any{"labels": out}
}

func spec(key string, value any) map[string]any { return map[string]any{key: value} }

func TestPoliciesOfTenants(t *testing.T) {
	of := func(tenant string) map[string]any { return thing(labelled(poolv1alpha1.LabelTenant, tenant), "", nil) }
	bare := thing(nil, "", nil)
	checkPolicy(t, "nvtopo-pool-tenants", "pool.nvtopo.dev/tenant says whose quota", map[string]policyCase{
		"a namespace of nobody":               {request{resource: "namespaces", object: bare}, true},
		"a namespace of a tenant":             {request{resource: "namespaces", object: of("team-a")}, false},
		"one by who may":                      {request{resource: "namespaces", object: of("team-a"), may: mayAssign}, true},
		"one of a tenant without a name":      {request{resource: "namespaces", object: of("")}, false},
		"a namespace that becomes a tenant's": {request{resource: "namespaces", object: of("team-a"), old: bare}, false},
		"by another door":                     {request{resource: "namespaces", subresource: "status", object: of("team-a"), old: bare}, false},
		"a namespace that changes its tenant": {request{resource: "namespaces", object: of("team-b"), old: of("team-a")}, false},
		"one that loses it":                   {request{resource: "namespaces", object: bare, old: of("team-a")}, false},
		"one that changes otherwise":          {request{resource: "namespaces", object: of("team-a"), old: of("team-a")}, true},
	})
	checkPolicy(t, "nvtopo-pool-tenants", "must consist of a-z", map[string]policyCase{
		"a tenant of a name that no account has": {request{resource: "namespaces", object: of("Team_A"), may: mayAssign}, false},
		"a tenant that becomes nobody's":         {request{resource: "namespaces", object: bare, old: of("team-a"), may: mayAssign}, true},
	})
}

func TestPoliciesOfProtectedJobs(t *testing.T) {
	protected := thing(labelled(kueue.LabelPriorityClass, names.ProtectedClass), "", nil)
	plain := thing(labelled(kueue.LabelPriorityClass, "nvtopo-p100"), "", nil)
	workload := thing(nil, "spec", spec("priorityClassRef", map[string]any{"name": names.ProtectedClass}))
	sized := func(pods int64, queue string) map[string]any {
		return thing(labelled(kueue.LabelPriorityClass, names.ProtectedClass, kueue.LabelQueue, queue), "spec",
			map[string]any{"parallelism": pods, "completions": pods})
	}
	checkPolicy(t, "nvtopo-pool-protected", "only the pool controller gives or takes it", map[string]policyCase{
		"a job with another class":                   {request{resource: "jobs", object: plain}, true},
		"a protected job":                            {request{resource: "jobs", object: protected}, false},
		"a protected pod":                            {request{resource: "pods", object: protected}, false},
		"one by the pool controller":                 {request{resource: "jobs", object: protected, may: mayProtect}, true},
		"a running job that becomes protected":       {request{resource: "jobs", object: protected, old: plain}, false},
		"by another door":                            {request{resource: "jobs", subresource: "status", object: protected, old: plain}, false},
		"a job that is protected no more":            {request{resource: "jobs", object: plain, old: protected}, false},
		"a protected job that changes otherwise":     {request{resource: "jobs", object: protected, old: protected}, true},
		"a protected job that becomes larger":        {request{resource: "jobs", object: sized(32, "q"), old: sized(1, "q")}, false},
		"by the pool controller":                     {request{resource: "jobs", object: sized(32, "q"), old: sized(1, "q"), may: mayProtect}, true},
		"a protected job that changes its queue":     {request{resource: "jobs", object: sized(1, "r"), old: sized(1, "q")}, false},
		"a protected job that stays as it is":        {request{resource: "jobs", object: sized(1, "q"), old: sized(1, "q")}, true},
		"a protected Workload":                       {request{resource: "workloads", object: workload}, false},
		"a Workload that becomes protected":          {request{resource: "workloads", object: workload, old: thing(nil, "", nil)}, false},
		"a protected Workload by Kueue":              {request{resource: "workloads", object: workload, may: mayProtect}, true},
		"a protected Workload that changes its spec": {request{resource: "workloads", object: workload, old: workload}, true},
	})
}

func TestPoliciesOfAdmission(t *testing.T) {
	gatedBy := func(by string, suspend bool) map[string]any {
		return thing(map[string]any{"annotations": map[string]any{kueue.AnnotationAdmissionGatedBy: by}}, "spec", spec("suspend", suspend))
	}
	gates := func(names ...string) map[string]any {
		list := []any{}
		for _, n := range names {
			list = append(list, map[string]any{"name": n})
		}
		return thing(nil, "spec", spec("schedulingGates", list))
	}
	owned := func(kind string, controller bool) map[string]any {
		return thing(map[string]any{"ownerReferences": []any{map[string]any{"kind": kind, "name": "y", "controller": controller}}}, "spec",
			map[string]any{"suspend": true, "schedulingGates": []any{map[string]any{"name": kueue.GateAdmission}}})
	}
	suspended, started := thing(nil, "spec", spec("suspend", true)), thing(nil, "spec", spec("suspend", false))
	bare := thing(nil, "", nil)
	ours, both := names.GateProtected, "example.com/budget,"+names.GateProtected
	tests := map[string]struct {
		request request
		want    string
	}{
		"a gate of ours that stays":        {request{resource: "jobs", object: gatedBy(ours, true), old: gatedBy(ours, true)}, ""},
		"a gate of ours that goes":         {request{resource: "jobs", object: suspended, old: gatedBy(ours, true)}, "only the pool controller takes it away"},
		"by another door":                  {request{resource: "jobs", subresource: "status", object: suspended, old: gatedBy(ours, true)}, "only the pool controller"},
		"one of two that goes":             {request{resource: "jobs", object: gatedBy("example.com/budget", true), old: gatedBy(both, true)}, "only the pool controller"},
		"another's that goes":              {request{resource: "jobs", object: gatedBy(ours, true), old: gatedBy(both, true)}, ""},
		"a gate by the pool controller":    {request{resource: "jobs", object: suspended, old: gatedBy(ours, true), may: mayAdmit}, ""},
		"the gate of a Workload":           {request{resource: "workloads", object: bare, old: gatedBy(ours, true)}, "only the pool controller"},
		"a job that somebody starts":       {request{resource: "jobs", object: started, old: suspended}, "spec.suspend: Kueue starts"},
		"a job that starts by a default":   {request{resource: "jobs", object: bare, old: suspended}, "spec.suspend: Kueue starts"},
		"a job that Kueue starts":          {request{resource: "jobs", object: started, old: suspended, may: mayAdmit}, ""},
		"a job that somebody suspends":     {request{resource: "jobs", object: suspended, old: started}, ""},
		"a job that runs":                  {request{resource: "jobs", object: started, old: started}, ""},
		"a pod without its gate":           {request{resource: "pods", object: gates(), old: gates("kueue.x-k8s.io/admission")}, "spec.schedulingGates: kueue.x-k8s.io/admission: Kueue removes"},
		"a pod that Kueue lets in":         {request{resource: "pods", object: gates(), old: gates("kueue.x-k8s.io/admission"), may: mayAdmit}, ""},
		"a pod without another's gate":     {request{resource: "pods", object: gates("kueue.x-k8s.io/admission"), old: gates("a/b", "kueue.x-k8s.io/admission")}, "nobody removes another"},
		"a pod of an elastic slice":        {request{resource: "pods", object: gates(), old: gates("kueue.x-k8s.io/elastic-job")}, "spec.schedulingGates: kueue.x-k8s.io/elastic-job"},
		"a pod that keeps its gates":       {request{resource: "pods", object: gates("a/b", "c"), old: gates("c", "a/b")}, ""},
		"a pod that is a Job's":            {request{resource: "pods", object: owned("Job", true)}, "only the Job controller"},
		"one by the Job controller":        {request{resource: "pods", object: owned("Job", true), may: mayAdmit}, ""},
		"a pod that becomes a Job's":       {request{resource: "pods", object: owned("Job", true), old: bare}, "only the Job controller"},
		"a Job's pod that changes":         {request{resource: "pods", object: owned("Job", true), old: owned("Job", true)}, ""},
		"a pod of a ReplicaSet":            {request{resource: "pods", object: owned("ReplicaSet", true)}, ""},
		"a pod that is a pod's":            {request{resource: "pods", object: owned("Pod", true)}, "only the Job controller"},
		"a job that is a Job's":            {request{resource: "jobs", object: owned("Job", true)}, "only the Job controller"},
		"a ReplicaSet that is a Job's":     {request{resource: "replicasets", object: owned("Job", true)}, "only the Job controller"},
		"a job of a StatefulSet":           {request{resource: "jobs", object: owned("StatefulSet", true)}, "only"},
		"a job that a JobSet comes to own": {request{resource: "jobs", object: owned("JobSet", true), old: suspended}, "so only"},
		"a job of a workflow":              {request{resource: "jobs", object: owned("Workflow", true)}, ""},
		"a pod that a ReplicaSet adopts":   {request{resource: "pods", object: owned("ReplicaSet", true), old: gates(kueue.GateAdmission)}, ""},
		"a StatefulSet that is a pod's":    {request{resource: "statefulsets", object: owned("Pod", true)}, "only the Job controller"},
		"a Deployment that gets a Job":     {request{resource: "deployments", object: owned("Job", true), old: bare}, "only the Job controller"},
		"a ReplicaSet of a Deployment":     {request{resource: "replicasets", object: owned("Deployment", true)}, ""},
		"a job of a CronJob":               {request{resource: "jobs", object: owned("CronJob", true)}, ""},
		"a pod that a Job comes to own":    {request{resource: "pods", object: owned("Job", true), old: owned("Job", false)}, "only the Job controller"},
		"a pod that a Job keeps in mind":   {request{resource: "pods", object: owned("Job", false)}, ""},
		"a pod that Kueue has not gated":   {request{resource: "pods", object: bare}, "Kueue has put no gate on this pod"},
		"one with a gate of its own":       {request{resource: "pods", object: gates("a/b")}, "Kueue has put no gate on this pod"},
		"one by who may":                   {request{resource: "pods", object: bare, may: mayAdmit}, ""},
		"a pod that waits":                 {request{resource: "pods", object: gates("a/b", kueue.GateAdmission)}, ""},
		"a job that Kueue lets start":      {request{resource: "jobs", object: started}, "Kueue has not suspended this job"},
		"a job that starts where unsaid":   {request{resource: "jobs", object: bare}, "Kueue has not suspended this job"},
		"a job that starts by who may":     {request{resource: "jobs", object: started, may: mayAdmit}, ""},
		"a ReplicaSet":                     {request{resource: "replicasets", object: bare}, ""},
		"a Workload that is a Job's":       {request{resource: "workloads", object: owned("Job", true), old: bare}, ""},
		"a pod of a tenant that is bound":  {request{resource: "pods", object: gates(), old: gates()}, ""},
	}
	policies := compiledPoolPolicies(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { checkAnswer(t, answer(t, policies, tc.request, "nvtopo-pool-admission"), tc.want) })
	}
}

func TestPoliciesOfQueues(t *testing.T) {
	checkPolicy(t, "nvtopo-pool-queues", "team-a has none: the job would run without quota", map[string]policyCase{
		"a job with a queue":    {request{resource: "jobs", object: thing(labelled(kueue.LabelQueue, "x"), "", nil)}, false},
		"a pod with a queue":    {request{resource: "pods", object: thing(labelled(kueue.LabelQueue, "x"), "", nil)}, false},
		"a job without a queue": {request{resource: "jobs", object: thing(labelled("a", "b"), "", nil)}, true},
	})
	managed := func(quota string) map[string]any {
		return thing(labelled(names.LabelManaged, "training"), "spec", spec("quota", quota))
	}
	free := thing(nil, "spec", spec("quota", "9"))
	checkPolicy(t, "nvtopo-pool-objects", "change the ComputePool", map[string]policyCase{
		"a queue of a pool by somebody":     {request{resource: "clusterqueues", object: managed("8")}, false},
		"one by the pool controller":        {request{resource: "clusterqueues", object: managed("8"), may: mayWrite}, true},
		"a queue of a pool that changes":    {request{resource: "clusterqueues", object: managed("9"), old: managed("8")}, false},
		"one that gets a finalizer":         {request{resource: "localqueues", object: managed("8"), old: managed("8")}, true},
		"one that stops being a pool's":     {request{resource: "clusterqueues", object: free, old: managed("9")}, false},
		"one that becomes a pool's":         {request{resource: "clusterqueues", object: managed("9"), old: free}, false},
		"a queue that is no pool's":         {request{resource: "clusterqueues", object: free}, true},
		"a queue that is no pool's changes": {request{resource: "clusterqueues", object: free, old: thing(nil, "", nil)}, true},
	})
}

func TestPoliciesOfAccounts(t *testing.T) {
	record := thing(nil, "spec", spec("quantity", int64(8)))
	cleaner := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:namespace-controller"}
	checkPolicy(t, "nvtopo-pool-accounts", "only the pool controller writes what was used", map[string]policyCase{
		"a record of a tenant's own":       {request{resource: "usagerecords", object: record}, false},
		"a record that is changed":         {request{resource: "usagerecords", subresource: "status", object: record, old: record}, false},
		"a record that is deleted":         {request{resource: "usagerecords", old: record}, false},
		"with its namespace":               {request{resource: "usagerecords", old: record, user: cleaner}, true},
		"the cleaner that writes":          {request{resource: "usagerecords", object: record, user: cleaner}, false},
		"a record by the pool controller":  {request{resource: "usagerecords", object: record, may: mayBill}, true},
		"an invoice":                       {request{resource: "invoices", object: record}, false},
		"an invoice by the controller":     {request{resource: "invoices", object: record, old: record, may: mayBill}, true},
		"a balance":                        {request{resource: "tenantaccounts", subresource: "status", object: record, old: record}, false},
		"a balance by the pool controller": {request{resource: "tenantaccounts", subresource: "status", object: record, old: record, may: mayBill}, true},
	})
	metered := thing(map[string]any{"finalizers": []any{"a/b", names.FinalizerMetering}}, "", nil)
	other := thing(map[string]any{"finalizers": []any{"a/b"}}, "", nil)
	onlyMetered := thing(map[string]any{"finalizers": []any{names.FinalizerMetering}}, "", nil)
	checkPolicy(t, "nvtopo-pool-metering", "once it has written down", map[string]policyCase{
		"a pod that loses its finalizer": {request{resource: "pods", object: other, old: metered}, false},
		"by another door":                {request{resource: "pods", subresource: "status", object: other, old: metered}, false},
		"by the pool controller":         {request{resource: "pods", object: other, old: metered, may: mayBill}, true},
		"another's finalizer":            {request{resource: "pods", object: onlyMetered, old: metered}, true},
		"a pod without finalizers":       {request{resource: "pods", object: thing(nil, "", nil), old: thing(nil, "", nil)}, true},
		"a pod that gets it":             {request{resource: "pods", object: metered, old: other}, true},
	})
}

func TestPoliciesOfForeignPods(t *testing.T) {
	pod := func(selector map[string]any, resource string) map[string]any {
		return thing(nil, "spec", map[string]any{"nodeSelector": selector, "containers": []any{
			map[string]any{"name": "a"},
			map[string]any{"name": "b", "resources": map[string]any{"limits": map[string]any{resource: "1"}}},
		}})
	}
	initial := thing(nil, "spec", map[string]any{
		"nodeSelector": map[string]any{poolv1alpha1.LabelPool: "training"}, "containers": []any{},
		"initContainers": []any{map[string]any{"resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "1"}}}},
	})
	pool := func(fields map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "training"}, "spec": fields}
	}
	byLabel, bySelector := pool(map[string]any{}), pool(map[string]any{"nodeSelector": map[string]any{"zone": "a", "gpu": "h100"}})
	mine := map[string]any{poolv1alpha1.LabelPool: "training"}
	checkPolicy(t, "nvtopo-pool-foreign", "it selects the nodes of pool training, whose devices only tenants use, and namespace team-a has no label", map[string]policyCase{
		"the pool's nodes and a GPU":             {request{resource: "pods", object: pod(mine, "nvidia.com/gpu"), params: byLabel}, false},
		"in a container that runs first":         {request{resource: "pods", object: initial, params: byLabel}, false},
		"the pool's nodes and a part of a GPU":   {request{resource: "pods", object: pod(mine, "nvidia.com/mig-1g.10gb"), params: byLabel}, false},
		"one that may":                           {request{resource: "pods", object: pod(mine, "nvidia.com/gpu"), params: byLabel, may: mayBypass}, true},
		"the pool's nodes and no GPU":            {request{resource: "pods", object: pod(mine, "cpu"), params: byLabel}, true},
		"another pool's nodes":                   {request{resource: "pods", object: pod(map[string]any{poolv1alpha1.LabelPool: "other"}, "nvidia.com/gpu"), params: byLabel}, true},
		"other nodes":                            {request{resource: "pods", object: pod(map[string]any{"zone": "a"}, "nvidia.com/gpu"), params: byLabel}, true},
		"nodes of a pool by its selector":        {request{resource: "pods", object: pod(map[string]any{"zone": "a", "gpu": "h100", "x": "y"}, "nvidia.com/gpu"), params: bySelector}, false},
		"more nodes than the pool's":             {request{resource: "pods", object: pod(map[string]any{"zone": "a"}, "nvidia.com/gpu"), params: bySelector}, true},
		"a resource that the pool does not have": {request{resource: "pods", object: pod(mine, "nvidia.com/gpu"), params: pool(map[string]any{"resources": []any{"example.com/npu"}})}, true},
		"a resource that it has":                 {request{resource: "pods", object: pod(mine, "example.com/npu"), params: pool(map[string]any{"resources": []any{"example.com/npu"}})}, false},
		"no selector":                            {request{resource: "pods", object: thing(nil, "spec", map[string]any{"containers": []any{}}), params: byLabel}, true},
	})
}

// policyCase is a request, and whether it is accepted.
type policyCase struct {
	request request
	accept  bool
}

// checkPolicy checks what a policy of pools says of requests: it refuses with one message.
func checkPolicy(t *testing.T, policy, refusal string, tests map[string]policyCase) {
	t.Helper()
	policies := compiledPoolPolicies(t)
	for name, tc := range tests {
		t.Run(policy+": "+name, func(t *testing.T) {
			want := refusal
			if tc.accept {
				want = ""
			}
			checkAnswer(t, answer(t, policies, tc.request, policy), want)
		})
	}
}
