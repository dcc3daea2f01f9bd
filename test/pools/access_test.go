// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// ownerOf returns a client of a user with all rights in the namespace of a tenant, and none elsewhere.
func (s *scenario) ownerOf(t *testing.T, tenant string) client.Client {
	t.Helper()
	namespace, user := s.tenant(tenant), "owner-of-"+s.tenant(tenant)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := s.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	cfg := s.RESTConfig()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	owner, err := client.New(cfg, client.Options{Scheme: kinds()})
	if err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, user+" may act in "+namespace, func(ctx context.Context) (bool, string) {
		err := owner.List(ctx, &batchv1.JobList{}, client.InNamespace(namespace))
		return err == nil, "list: " + errorText(err)
	})
	return owner
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestQuotaBypass checks that a tenant with all rights in its namespace cannot exceed its quota by them.
func TestQuotaBypass(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a")
	s.namespace(t, "free", nil)
	s.yaml(t, oneQueue)
	owner, elsewhere := s.ownerOf(t, "a"), s.ownerOf(t, "free")
	s.job(t, "a", "runs", work{gpus: 4})
	running := s.running(t, "a", "runs", 1)[0]
	s.job(t, "a", "waits", work{gpus: 4})
	s.waits(t, "a", "waits")
	// Kueue keeps a pod without a queue waiting.
	gated := gpuPod(s.tenant("a"), "gated", 4).Obj()
	kept := gpuPod(s.tenant("a"), "kept", 4).Finalizer(names.FinalizerMetering).Obj()
	for _, pod := range []*v1.Pod{gated, kept} {
		if err := owner.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if len(pod.Spec.SchedulingGates) == 0 {
			t.Fatalf("pod %s does not wait for quota", pod.Name)
		}
	}
	t.Cleanup(func() {
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := s.Patch(context.Background(), kept, free); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	// The policy about pods outside of tenants' namespaces is evaluated for each ComputePool.
	s.yaml(t, "apiVersion: pool.nvtopo.dev/v1alpha1\nkind: ComputePool\nmetadata: {name: POOL}\nspec: {poolType: gpu, capacity: {total: 1}}\n")
	// Kueue's finalizer stays: another policy protects it, and which of the two refuses is random.
	rest, err := json.Marshal(slices.DeleteFunc(slices.Clone(kept.Finalizers), func(f string) bool { return f == names.FinalizerMetering }))
	if err != nil {
		t.Fatal(err)
	}
	withoutMetering := fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, rest)
	record := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "pool.nvtopo.dev/v1alpha1", "kind": "UsageRecord", "metadata": map[string]any{"name": "mine", "namespace": s.tenant("a")},
		"spec": map[string]any{
			"tenant": s.tenant("a"), "pool": s.name, "pod": "mine", "podUID": "mine", "node": s.nodes[0], "resource": "nvidia.com/gpu",
			"quantity": "1", "start": "2026-01-01T00:00:00Z",
		},
	}}

	job := func(change func(*batchv1.Job)) *batchv1.Job {
		j := s.jobObject("a", "another", &work{gpus: 4})
		change(j)
		return j
	}
	pod := func(namespace string, change func(*v1.Pod)) *v1.Pod {
		p := gpuPod(s.tenant(namespace), "another", 4).Obj()
		change(p)
		return p
	}
	tests := map[string]struct {
		who  client.Client
		try  func(context.Context, client.Client) error
		want string
	}{
		"a job of the class that must not be preempted": {owner, makes(job(func(j *batchv1.Job) {
			j.Labels[kueue.LabelPriorityClass] = names.ProtectedClass
		})), "only the pool controller gives or takes it"},
		"a pod of that class": {owner, makes(pod("a", func(p *v1.Pod) {
			p.Labels = map[string]string{kueue.LabelPriorityClass: names.ProtectedClass}
		})), "only the pool controller gives or takes it"},
		"a running job that becomes one": {owner, patches(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant("a"), Name: "runs"}},
			`{"metadata":{"labels":{"`+kueue.LabelPriorityClass+`":"`+names.ProtectedClass+`"}}}`), "only the pool controller gives or takes it"},
		"a job with the priority of the system": {owner, makes(job(func(j *batchv1.Job) {
			delete(j.Labels, kueue.LabelPriorityClass)
			j.Spec.Template.Spec.PriorityClassName = "system-cluster-critical"
		})), "would evict others' by it"},
		"a job without quota that is started": {owner, patches(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant("a"), Name: "waits"}},
			`{"spec":{"suspend":false}}`), "Kueue starts the jobs of tenants"},
		"a pod without quota whose gate is removed": {owner, patches(gated, `{"spec":{"schedulingGates":null}}`), "Kueue removes its gate"},
		"a pod that says that it is a running job's": {owner, makes(pod("a", func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.GetControllerOf(running)}
		})), "so only the Job controller makes it"},
		"a job with a queue outside of the tenants": {elsewhere, makes(job(func(j *batchv1.Job) {
			j.Namespace = s.tenant("free")
		})), "the job would run without quota"},
		"a namespace that becomes a tenant's": {elsewhere, patches(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.tenant("free")}},
			`{"metadata":{"labels":{"`+poolv1alpha1.LabelTenant+`":"`+s.tenant("a")+`"}}}`), "says whose quota"},
		"a namespace that is a tenant's no more": {owner, patches(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.tenant("a")}},
			`{"metadata":{"labels":{"`+poolv1alpha1.LabelTenant+`":null}}}`), "says whose quota"},
		"a ClusterQueue of his own": {owner, makes(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-own"}}), `cannot create resource "clusterqueues"`},
		"a Cohort of his own":       {owner, makes(&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-own"}}), `cannot create resource "cohorts"`},
		"a priority of his own":     {owner, makes(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-own"}, Value: 9_000_000}), `cannot create resource "workloadpriorityclasses"`},
		"a ComputePool of his own":  {owner, makes(&poolv1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-own"}}), `cannot create resource "computepools"`},
		"a LocalQueue that looks like a pool's": {owner, makes(&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: s.tenant("a"), Labels: map[string]string{names.LabelManaged: s.name}},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: s.name},
		}), "change the ComputePool"},
		"a pod on the pool's nodes that is no tenant's, once there is a pool": {elsewhere, makes(pod("free", func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{poolv1alpha1.LabelPool: s.name}
		})), "whose devices only tenants use"},
		"a pod that goes before its end is written down": {owner, patches(kept, withoutMetering), "once it has written down"},
		"a record of what was used":                      {owner, makes(record), "only the pool controller writes what was used"},
	}
	for name, tc := range tests {
		// The API server receives pools, the parameters of one policy, a moment after they are created.
		s.waitFor(t, name+" is refused", func(ctx context.Context) (bool, string) {
			err := tc.try(ctx, tc.who)
			refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
			return refused && strings.Contains(err.Error(), tc.want), "the answer was: " + errorText(err) + "; want: " + tc.want
		})
	}
	if got := s.counts("a"); got.bound != 4 {
		t.Errorf("the tenant holds %d devices, and his quota is 4", got.bound)
	}
}

// makes tries a creation of an object as a dry run.
func makes(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		copied, _ := o.DeepCopyObject().(client.Object)
		return c.Create(ctx, copied, client.DryRunAll)
	}
}

// patches tries a patch of an object as a dry run.
func patches(o client.Object, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		copied, _ := o.DeepCopyObject().(client.Object)
		return c.Patch(ctx, copied, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
}
