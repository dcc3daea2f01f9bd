// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"maps"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	mayDelete  = []string{"delete pods"}
	mayEvict   = []string{"create pods"} // pods/eviction
	mayStart   = []string{"bypass quotas"}
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
	return compiledList(t, list, bindings, 23)
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
		"a job with another class":               {request{resource: "jobs", object: plain}, true},
		"a protected job":                        {request{resource: "jobs", object: protected}, false},
		"a protected pod":                        {request{resource: "pods", object: protected}, false},
		"one by the pool controller":             {request{resource: "jobs", object: protected, may: mayProtect}, true},
		"a running job that becomes protected":   {request{resource: "jobs", object: protected, old: plain}, false},
		"by another door":                        {request{resource: "jobs", subresource: "status", object: protected, old: plain}, false},
		"a job that is protected no more":        {request{resource: "jobs", object: plain, old: protected}, false},
		"a protected job that changes otherwise": {request{resource: "jobs", object: protected, old: protected}, true},
		"a protected job that becomes larger":    {request{resource: "jobs", object: sized(32, "q"), old: sized(1, "q")}, false},
		"by the pool controller":                 {request{resource: "jobs", object: sized(32, "q"), old: sized(1, "q"), may: mayProtect}, true},
		"a protected job that changes its queue": {request{resource: "jobs", object: sized(1, "r"), old: sized(1, "q")}, false},
		"a protected job that stays as it is":    {request{resource: "jobs", object: sized(1, "q"), old: sized(1, "q")}, true},
	})
	checkPolicy(t, "nvtopo-pool-protected-workloads", "only the pool controller gives or takes it", map[string]policyCase{
		"a Workload with another class":              {request{resource: "workloads", object: plain}, true},
		"a Workload by its label":                    {request{resource: "workloads", object: protected}, false},
		"a protected Workload":                       {request{resource: "workloads", object: workload}, false},
		"a Workload that becomes protected":          {request{resource: "workloads", object: workload, old: thing(nil, "", nil)}, false},
		"a protected Workload by Kueue":              {request{resource: "workloads", object: workload, may: mayProtect}, true},
		"a protected Workload that changes its spec": {request{resource: "workloads", object: workload, old: workload}, true},
		"a Workload that is protected no more":       {request{resource: "workloads", object: plain, old: workload}, false},
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
		"one between spaces that goes":     {request{resource: "jobs", object: suspended, old: gatedBy("a/b,\u00a0"+ours+"\t,c/d", true)}, "only the pool controller"},
		"one between spaces that stays":    {request{resource: "jobs", object: gatedBy(" "+ours+" ", true), old: gatedBy(ours, true)}, ""},
		"one like ours that goes":          {request{resource: "jobs", object: suspended, old: gatedBy("x"+ours+","+ours+"x", true)}, ""},
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
		"a pod without labels":  {request{resource: "pods", object: thing(nil, "", nil)}, true},
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
		"a batch":                          {request{resource: "usagebatches", object: record}, false},
		"a batch that is deleted":          {request{resource: "usagebatches", old: record}, false},
		"a batch by the pool controller":   {request{resource: "usagebatches", object: record, may: mayBill}, true},
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

// TestPoliciesOfAccountDeletion: an account with credits, a price book or a bill is deleted only by who has
// said so on it.
func TestPoliciesOfAccountDeletion(t *testing.T) {
	account := func(annotations map[string]any, credits []any, status map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "team-a", "annotations": annotations}, "spec": map[string]any{"credits": credits}, "status": status}
	}
	paid := []any{map[string]any{"id": "payment-1", "amount": "1000.00"}}
	balance := map[string]any{"balance": "508.00", "billed": "492.00", "accrued": "0.00"}
	nothing := map[string]any{"balance": "0.00", "billed": "0.00", "accrued": "0.00"}
	empty := map[string]any{"metadata": map[string]any{"name": "team-a"}, "spec": map[string]any{}}
	said := map[string]any{poolv1alpha1.AnnotationAllowDeletion: "true"}
	const refusal = "TenantAccount team-a: it has credits, a price book or a bill"
	checkPolicy(t, "nvtopo-pool-account-deletion", refusal, map[string]policyCase{
		"with credits":                        {request{resource: "tenantaccounts", old: account(nil, paid, balance)}, false},
		"with credits, by the controller":     {request{resource: "tenantaccounts", old: account(nil, paid, balance), may: mayBill}, false},
		"with credits that nobody has billed": {request{resource: "tenantaccounts", old: account(nil, paid, nil)}, false},
		"with a price book":                   {request{resource: "tenantaccounts", old: account(map[string]any{poolv1alpha1.AnnotationPriceBook: "dear"}, nil, nothing)}, false},
		"with a bill":                         {request{resource: "tenantaccounts", old: account(nil, nil, balance)}, false},
		"with what goes on":                   {request{resource: "tenantaccounts", old: account(nil, nil, map[string]any{"billed": "0.00", "accrued": "0.03"})}, false},
		"said on it":                          {request{resource: "tenantaccounts", old: account(said, paid, balance)}, true},
		"said otherwise":                      {request{resource: "tenantaccounts", old: account(map[string]any{poolv1alpha1.AnnotationAllowDeletion: "no"}, paid, balance)}, false},
		"with nothing":                        {request{resource: "tenantaccounts", old: account(nil, nil, nothing)}, true},
		"without any field":                   {request{resource: "tenantaccounts", old: empty}, true},
	})
	invoice := func(final bool, annotations map[string]any) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": "inv-1", "annotations": annotations}, "spec": map[string]any{"tenant": "team-a", "total": "12.00", "finalized": final},
		}
	}
	checkPolicy(t, "nvtopo-pool-account-deletion", "Invoice inv-1: it is final, and the balance of team-a has its total", map[string]policyCase{
		"a final invoice":                  {request{resource: "invoices", old: invoice(true, nil)}, false},
		"a final invoice, by who may bill": {request{resource: "invoices", old: invoice(true, nil), may: mayBill}, false},
		"a final invoice, said on it":      {request{resource: "invoices", old: invoice(true, said)}, true},
		"an open invoice":                  {request{resource: "invoices", old: invoice(false, nil), may: mayBill}, true},
		"an invoice that does not say":     {request{resource: "invoices", old: empty, may: mayBill}, true},
	})
	checkPolicy(t, "nvtopo-pool-account-deletion", "(balance 508.00)", map[string]policyCase{
		"the balance is named": {request{resource: "tenantaccounts", old: account(nil, paid, balance)}, false},
	})
	checkPolicy(t, "nvtopo-pool-account-deletion", "first kubectl annotate tenantaccount team-a "+poolv1alpha1.AnnotationAllowDeletion+"=true", map[string]policyCase{
		"so is the next step": {request{resource: "tenantaccounts", old: account(nil, paid, nil)}, false},
	})
}

// TestPoliciesOfCredits: credits go from an account only by the pool controller. Whether their sum stays is
// for the definition to say.
func TestPoliciesOfCredits(t *testing.T) {
	account := func(credits int) map[string]any {
		var list []any
		for i := range credits {
			list = append(list, map[string]any{"id": strconv.Itoa(i), "amount": "1.00"})
		}
		return map[string]any{"metadata": map[string]any{"name": "team-a"}, "spec": map[string]any{"credits": list}}
	}
	empty := map[string]any{"metadata": map[string]any{"name": "team-a"}, "spec": map[string]any{}}
	controller := &user.DefaultInfo{Name: "system:serviceaccount:nvtopo-system:nvtopo-pool-controller"}
	admin := &user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup}}
	checkPolicy(t, "nvtopo-pool-credits", "TenantAccount team-a: spec.credits can only be added to. The pool controller alone", map[string]policyCase{
		"credits go, by somebody":         {request{resource: "tenantaccounts", object: account(1), old: account(3)}, false},
		"by an administrator":             {request{resource: "tenantaccounts", object: account(1), old: account(3), user: admin, may: mayBill}, false},
		"by an account that may not":      {request{resource: "tenantaccounts", object: account(1), old: account(3), user: controller}, false},
		"by the pool controller":          {request{resource: "tenantaccounts", object: account(1), old: account(3), user: controller, may: mayBill}, true},
		"all go, by somebody":             {request{resource: "tenantaccounts", object: empty, old: account(3)}, false},
		"one is added, by somebody":       {request{resource: "tenantaccounts", object: account(4), old: account(3)}, true},
		"the first, by somebody":          {request{resource: "tenantaccounts", object: account(1), old: empty}, true},
		"there are as many as there were": {request{resource: "tenantaccounts", object: account(3), old: account(3)}, true},
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

func TestPoliciesOfGracePeriods(t *testing.T) {
	pod := func(grace int64, meta, more map[string]any) map[string]any {
		fields := map[string]any{"containers": []any{}, "terminationGracePeriodSeconds": grace}
		maps.Copy(fields, more)
		return thing(meta, "spec", fields)
	}
	job := func(grace int64, meta map[string]any) map[string]any {
		return thing(meta, "spec", spec("template", map[string]any{"spec": map[string]any{"terminationGracePeriodSeconds": grace}}))
	}
	pool := func(fields map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "training"}, "spec": fields}
	}
	usual, short := pool(map[string]any{}), pool(map[string]any{"maxTerminationGracePeriodSeconds": int64(60), "nodeSelector": map[string]any{"zone": "a"}})
	inPool, inQueue, elsewhere := labelled(kueue.LabelQueue, "training"), labelled(kueue.LabelQueue, "training.high"), labelled(kueue.LabelQueue, "training-b")
	selects := map[string]any{"nodeSelector": map[string]any{poolv1alpha1.LabelPool: "training", "x": "y"}}
	checkPolicy(t, "nvtopo-pool-grace", "terminationGracePeriodSeconds: at most 600 in pool training", map[string]policyCase{
		"a job of an hour":                         {request{resource: "jobs", object: job(3600, inPool), params: usual}, false},
		"one in a queue of the pool":               {request{resource: "jobs", object: job(3600, inQueue), params: usual}, false},
		"one in another pool":                      {request{resource: "jobs", object: job(3600, elsewhere), params: usual}, true},
		"a job of ten minutes":                     {request{resource: "jobs", object: job(600, inPool), params: usual}, true},
		"a job that says nothing":                  {request{resource: "jobs", object: thing(inPool, "spec", spec("template", map[string]any{"spec": map[string]any{}})), params: usual}, true},
		"a pod of an hour":                         {request{resource: "pods", object: pod(3600, inPool, nil), params: usual}, false},
		"a job's pod, which selects nodes":         {request{resource: "pods", object: pod(3600, nil, selects), params: usual}, false},
		"a pod that is no pool's":                  {request{resource: "pods", object: pod(3600, nil, nil), params: usual}, true},
		"a job's pod on another pool's nodes":      {request{resource: "pods", object: pod(3600, nil, map[string]any{"nodeSelector": map[string]any{poolv1alpha1.LabelPool: "b"}}), params: usual}, true},
		"a job of a minute where that is the most": {request{resource: "jobs", object: job(60, inPool), params: short}, true},
	})
	checkPolicy(t, "nvtopo-pool-grace", "at most 60 in pool training", map[string]policyCase{
		"a job in a pool that allows less":  {request{resource: "jobs", object: job(61, inPool), params: short}, false},
		"a pod that its selector picks":     {request{resource: "pods", object: pod(61, nil, map[string]any{"nodeSelector": map[string]any{"zone": "a"}}), params: short}, false},
		"a pod that another selector picks": {request{resource: "pods", object: pod(61, nil, map[string]any{"nodeSelector": map[string]any{"zone": "b"}}), params: short}, true},
	})
	running := func(grace int64, phase string) map[string]any {
		out := pod(grace, nil, map[string]any{"nodeName": "n"})
		out["status"] = map[string]any{"phase": phase}
		return out
	}
	with := func(grace *int64) *metav1.DeleteOptions { return &metav1.DeleteOptions{GracePeriodSeconds: grace} }
	eviction := func(options map[string]any) map[string]any {
		out := thing(nil, "", nil)
		delete(out, "spec")
		if options != nil {
			out["deleteOptions"] = options
		}
		return out
	}
	ofJob := func(grace int64) map[string]any {
		out := running(grace, "Running")
		meta, _ := out["metadata"].(map[string]any)
		meta["ownerReferences"] = []any{map[string]any{"kind": "Job", "controller": true}}
		return out
	}
	checkPolicy(t, "nvtopo-pool-deletion", "gracePeriodSeconds: a tenant's running pod", map[string]policyCase{
		"a pod that is deleted":                 {request{resource: "pods", old: running(600, "Running"), options: with(nil)}, true},
		"as the API server completes it":        {request{resource: "pods", old: running(600, "Running"), options: with(new(int64(600)))}, true},
		"sooner":                                {request{resource: "pods", old: running(600, "Running"), options: with(new(int64(1)))}, true},
		"later":                                 {request{resource: "pods", old: running(30, "Running"), options: with(new(int64(3600)))}, false},
		"later, by who may":                     {request{resource: "pods", old: running(30, "Running"), options: with(new(int64(3600))), may: mayDelete}, true},
		"by force":                              {request{resource: "pods", old: running(600, "Running"), options: with(new(int64(0)))}, false},
		"by force, by a kubelet":                {request{resource: "pods", old: running(600, "Running"), options: with(new(int64(0))), may: mayDelete}, true},
		"by force, once it has ended":           {request{resource: "pods", old: running(600, "Failed"), options: with(new(int64(0)))}, true},
		"by force, before it has a node":        {request{resource: "pods", old: pod(600, nil, nil), options: with(new(int64(0)))}, true},
		"a pod that ends at once":               {request{resource: "pods", old: running(0, "Running"), options: with(new(int64(0)))}, true},
		"a Job's pod":                           {request{resource: "pods", old: ofJob(600), options: with(nil)}, false},
		"a Job's pod, by the garbage collector": {request{resource: "pods", old: ofJob(600), options: with(nil), may: mayDelete}, true},
		"a Job's pod, now":                      {request{resource: "pods", old: ofJob(600), options: with(new(int64(1)))}, true},
		"a Job's pod that ends in a second":     {request{resource: "pods", old: ofJob(1), options: with(nil)}, true},
		"an eviction":                           {request{resource: "pods", subresource: "eviction", object: eviction(nil)}, false},
		"an eviction by the pool controller":    {request{resource: "pods", subresource: "eviction", object: eviction(nil), may: mayEvict}, true},
		"an eviction, now":                      {request{resource: "pods", subresource: "eviction", object: eviction(map[string]any{"gracePeriodSeconds": int64(1)})}, true},
		"an eviction by force":                  {request{resource: "pods", subresource: "eviction", object: eviction(map[string]any{"gracePeriodSeconds": int64(0)})}, false},
		"an eviction with a time":               {request{resource: "pods", subresource: "eviction", object: eviction(map[string]any{"gracePeriodSeconds": int64(3600)})}, false},
		"an eviction with a time, by a drain":   {request{resource: "pods", subresource: "eviction", object: eviction(map[string]any{"gracePeriodSeconds": int64(3600)}), may: mayEvict}, true},
	})
	suspended, started := thing(nil, "spec", spec("suspend", true)), thing(nil, "spec", spec("suspend", false))
	checkPolicy(t, "nvtopo-pool-suspension", "spec.suspend: Kueue would start the job again at once", map[string]policyCase{
		"a job that somebody suspends": {request{resource: "jobs", object: suspended, old: started}, false},
		"by another door":              {request{resource: "jobs", subresource: "status", object: suspended, old: started}, false},
		"one that Kueue suspends":      {request{resource: "jobs", object: suspended, old: started, may: mayAdmit}, true},
		"one that is made larger":      {request{resource: "jobs", object: thing(nil, "spec", map[string]any{"suspend": true, "parallelism": 4}), old: started}, true},
		"one that is made smaller":     {request{resource: "jobs", object: thing(nil, "spec", map[string]any{"suspend": true, "parallelism": 0}), old: started}, false},
		"one that is suspended":        {request{resource: "jobs", object: suspended, old: suspended}, true},
		"one that starts":              {request{resource: "jobs", object: started, old: suspended}, true},
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
