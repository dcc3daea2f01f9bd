// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	jobSetNamespace = "jobset-system"
	jobSetAccount   = "jobset-controller-manager"
	jobSetLabel     = "jobset.sigs.k8s.io/jobset-name"
)

// attempt is an attempt of a tenant, with a part of its refusal.
type attempt struct {
	who  client.Client
	try  func(context.Context, client.Client) error
	want string
}

// refused waits until each attempt is refused for its reason.
func (s *scenario) refused(t *testing.T, attempts map[string]attempt) {
	t.Helper()
	for name, a := range attempts {
		s.waitFor(t, name+" is refused", func(ctx context.Context) (bool, string) {
			err := a.try(ctx, a.who)
			no := apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
			return no && strings.Contains(err.Error(), a.want), "the answer was: " + errorText(err) + "; want: " + a.want
		})
	}
}

// deployment returns a Deployment of pods with a GPU each, in the scenario's queue by a label of its own.
func (s *scenario) deployment(tenant, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.tenant(tenant), Labels: map[string]string{kueue.LabelQueue: names.LocalQueue(s.name, "")}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       gpuPod("", "", 1).With(func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyAlways }).Obj().Spec,
			},
		},
	}
}

// TestDeployment checks that a Deployment's pods get quota one by one: those beyond the limit wait, an
// evicted one is recreated and waits, each is recorded, and a forged owner reference starts no more of
// them.
func TestDeployment(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a", "b")
	s.namespace(t, "free", nil)
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 8}
  quotas: [{tenant: POOL-a, limit: 6}, {tenant: POOL-b, guaranteed: 4}]`)
	s.ready(t)
	owner, elsewhere := s.ownerOf(t, "a"), s.ownerOf(t, "free")
	serve := s.deployment("a", "serve", 7)
	if err := owner.Create(t.Context(), serve); err != nil {
		t.Fatal(err)
	}
	s.waitBound(t, map[string]int64{"a": 6})
	s.waitFor(t, "each pod has a Workload of its own, and one waits", func(context.Context) (bool, string) {
		c := s.counts("a")
		return c.admitted == 6 && c.waiting == 1, fmt.Sprintf("%+v", c)
	})
	bound := slices.DeleteFunc(s.podsOf(t, "a"), func(p *v1.Pod) bool { return p.Spec.NodeName == "" })

	replicaSet := metav1.GetControllerOf(bound[0])
	pod := gpuPod(s.tenant("a"), "another", 1).Obj()
	pod.OwnerReferences = []metav1.OwnerReference{*replicaSet}
	job := s.jobObject("a", "another", &work{gpus: 1})
	job.OwnerReferences = pod.OwnerReferences
	unqueued, inTemplate, outside := s.deployment("a", "another", 1), s.deployment("a", "another", 1), s.deployment("free", "another", 1)
	unqueued.Labels = nil
	inTemplate.Labels, inTemplate.Spec.Template.Labels = nil, map[string]string{"app": "another", kueue.LabelQueue: names.LocalQueue(s.name, "")}
	*job.Spec.Suspend = false
	s.refused(t, map[string]attempt{
		"a pod that says that it is the Deployment's": {owner, makes(pod), "without quota of its own"},
		"a Job that says that it is the Deployment's": {owner, makes(job), "without quota of its own"},
		"a Deployment without a queue":                {owner, makes(unqueued), "needs kueue.x-k8s.io/queue-name on itself"},
		"one with its queue in the template":          {owner, makes(inTemplate), "needs kueue.x-k8s.io/queue-name on itself"},
		"one with a queue outside of the tenants":     {elsewhere, makes(outside), "the job would run without quota"},
	})

	s.job(t, "b", "guaranteed", work{gpus: 4})
	s.waitBound(t, map[string]int64{"a": 4, "b": 4})
	var evicted []*v1.Pod
	s.waitFor(t, "what was evicted is made anew, and waits", func(context.Context) (bool, string) {
		there := s.podsOf(t, "a")
		evicted = slices.DeleteFunc(slices.Clone(bound), func(p *v1.Pod) bool {
			return slices.ContainsFunc(there, func(now *v1.Pod) bool { return now.UID == p.UID })
		})
		c := s.counts("a")
		return len(evicted) == 2 && c.admitted == 4 && c.waiting == 3, fmt.Sprintf("%d evicted, %+v", len(evicted), c)
	})
	s.recorded(t, evicted[0].UID)
	scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))
	if err := owner.Patch(t.Context(), serve, scale); err != nil {
		t.Fatal(err)
	}
	s.waitBound(t, map[string]int64{"a": 2, "b": 4})
}

// runJobSet runs JobSet's controller, as its own account with its own role, until the test ends.
func (s *scenario) runJobSet(t *testing.T) {
	t.Helper()
	binary, config := testkit.JobSet(t)
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(config, "components", path))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(string(text), "---\n")
	}
	s.apply(t, read("crd/bases/jobset.x-k8s.io_jobsets.yaml"))
	role := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal([]byte(read("rbac/role.yaml")), role); err != nil {
		t.Fatal(err)
	}
	role.Name = "jobset-manager-role"
	account := metav1.ObjectMeta{Name: jobSetAccount, Namespace: jobSetNamespace}
	for _, o := range []client.Object{
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: jobSetNamespace}}, &v1.ServiceAccount{ObjectMeta: account}, role,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: jobSetAccount, Namespace: jobSetNamespace}},
		},
	} {
		if err := s.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	s.waitFor(t, "JobSets are served", func(ctx context.Context) (bool, string) {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("jobset.x-k8s.io/v1alpha2")
		list.SetKind("JobSetList")
		err := s.List(ctx, list)
		return err == nil, errorText(err)
	})
	cfg, err := s.ServiceAccountConfig(t.Context(), jobSetNamespace, jobSetAccount)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := devcluster.WriteKubeconfigOf(cfg, kubeconfig); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "--kubeconfig="+kubeconfig)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = testkit.Log(), testkit.Log()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { <-ended })
}

// jobSet returns a JobSet of one kind of Job, each of a pod. Fields that JobSet's own webhook would
// default are set; suspend is not, which Kueue sets.
func (s *scenario) jobSet(t *testing.T, tenant, name string, replicas, gpus int64) *unstructured.Unstructured {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: %s, namespace: %s, labels: {kueue.x-k8s.io/queue-name: %s}}
spec:
  network: {enableDNSHostnames: false}
  successPolicy: {operator: All}
  replicatedJobs:
  - name: workers
    replicas: %d
    template:
      spec:
        parallelism: 1
        completions: 1
        completionMode: Indexed
        template:
          spec:
            schedulerName: %s
            restartPolicy: Never
            containers:
            - {name: main, image: example.com/train, resources: {limits: {nvidia.com/gpu: %d}}}
`, name, s.tenant(tenant), names.LocalQueue(s.name, ""), replicas, schedulerName, gpus)
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// patchesStatus is patches for the status.
func patchesStatus(o client.Object, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		copied, _ := o.DeepCopyObject().(client.Object)
		return c.Status().Patch(ctx, copied, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
}

// TestJobSet checks that a JobSet starts whole once it has quota for all its Jobs, that another one waits
// for it, and that its tenant cannot make it or its Jobs larger than Kueue has counted.
func TestJobSet(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.runJobSet(t)
	s.tenants(t, "a")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 8}
  quotas: [{tenant: POOL-a, limit: 4}]`)
	s.ready(t)
	s.knowsJobSets(t)
	owner := s.ownerOf(t, "a")
	train, second := s.jobSet(t, "a", "train", 2, 2), s.jobSet(t, "a", "second", 1, 2)
	if err := owner.Create(t.Context(), train); err != nil {
		t.Fatal(err)
	}
	s.waitBound(t, map[string]int64{"a": 4})
	if err := owner.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the second waits for quota", func(ctx context.Context) (bool, string) {
		w, err := s.workload(ctx, "a", "second")
		if err != nil || w == nil {
			return false, fmt.Sprint(w, err)
		}
		c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "insufficient"), fmt.Sprint(c)
	})
	if c := s.counts("a"); c.admitted != 1 || c.waiting != 1 {
		t.Errorf("Kueue counts %+v, want one Workload of each JobSet", c)
	}
	s.jobSetCheats(t, owner, train, second)
	if got := s.counts("a"); got.bound != 4 {
		t.Errorf("the tenant holds %d devices, and his quota is 4", got.bound)
	}

	pods := s.podsOf(t, "a", client.MatchingLabels{jobSetLabel: "train"})
	if len(pods) != 2 {
		t.Fatalf("%d pods of the JobSet, want 2", len(pods))
	}
	for _, p := range pods {
		s.end(t, p)
	}
	s.waitFor(t, "the second runs", func(context.Context) (bool, string) {
		got := s.podsOf(t, "a", client.MatchingLabels{jobSetLabel: "second"})
		return len(got) == 1 && got[0].Status.Phase == v1.PodRunning, fmt.Sprintf("%d pods", len(got))
	})
	s.waitBound(t, map[string]int64{"a": 2})
	for _, p := range pods {
		s.recorded(t, p.UID)
	}
}

// knowsJobSets waits until Kueue knows a JobSet as the owner of its Jobs. It looks for the definition
// with growing pauses, and its controller of JobSets runs before its webhooks know of them (WaitForAPI
// and setupControllerAndWebhook in its pkg/controller/jobframework/setup.go): Jobs of a JobSet from
// before get a queue and a Workload of their own.
func (s *scenario) knowsJobSets(t *testing.T) {
	t.Helper()
	set := s.jobSet(t, "a", "probe", 1, 1)
	set.SetLabels(map[string]string{kueue.LabelQueue: "none"})
	if err := unstructured.SetNestedField(set.Object, true, "spec", "suspend"); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "Kueue gives a Job of a JobSet no queue of its own", func(ctx context.Context) (bool, string) {
		job := s.jobObject("a", "probe", &work{gpus: 1, unqueued: true})
		job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, set.GroupVersionKind())}
		err := s.Create(ctx, job, client.DryRunAll)
		return err == nil && job.Labels[kueue.LabelQueue] == "", fmt.Sprint(err, job.Labels)
	})
	s.remove(t, set)
}

// jobSetCheats are a tenant's attempts with a JobSet that runs and one that waits.
func (s *scenario) jobSetCheats(t *testing.T, owner client.Client, train, second *unstructured.Unstructured) {
	t.Helper()
	s.get(t, train, train.GetNamespace(), train.GetName())
	reference := metav1.OwnerReference{APIVersion: train.GetAPIVersion(), Kind: train.GetKind(), Name: train.GetName(), UID: train.GetUID(), Controller: new(true)}
	job := func(suspend bool) *batchv1.Job {
		j := s.jobObject("a", "another", &work{gpus: 4})
		j.OwnerReferences, j.Spec.Suspend = []metav1.OwnerReference{reference}, &suspend
		return j
	}
	pod := gpuPod(s.tenant("a"), "another", 4).Obj()
	pod.OwnerReferences = []metav1.OwnerReference{reference}
	child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "train-workers-0", Namespace: s.tenant("a")}}
	larger := func() string {
		jobs, _, err := unstructured.NestedSlice(train.Object, "spec", "replicatedJobs")
		if err != nil || len(jobs) != 1 {
			t.Fatalf("replicated jobs %v, %v", jobs, err)
		}
		first, _ := jobs[0].(map[string]any)
		first["replicas"] = int64(6)
		text, err := yaml.Marshal(map[string]any{"spec": map[string]any{"replicatedJobs": jobs}})
		if err != nil {
			t.Fatal(err)
		}
		patch, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(patch)
	}()
	protected := s.jobSet(t, "a", "another", 1, 1)
	labels := protected.GetLabels() // a copy
	labels[kueue.LabelPriorityClass] = names.ProtectedClass
	protected.SetLabels(labels)
	s.refused(t, map[string]attempt{
		"a Job that says that it is the JobSet's": {owner, makes(job(false)), "without quota of its own"},
		"one that waits": {owner, makes(job(true)), "without quota of its own"},
		"a pod that says that it is the JobSet's":     {owner, makes(pod), "without quota of its own"},
		"the JobSet that grows":                       {owner, patches(train, larger), "cannot be changed while the JobSet runs"},
		"its Job that grows":                          {owner, patches(child, `{"spec":{"parallelism":6,"completions":6}}`), "spec.parallelism"},
		"the one that waits, started":                 {owner, patches(second, `{"spec":{"suspend":false}}`), "Kueue starts the JobSets of tenants"},
		"the one that runs, said to have ended":       {owner, patchesStatus(train, `{"status":{"restarts":1}}`), "only the JobSet controller writes it"},
		"a JobSet of the class that is never evicted": {owner, makes(protected), "only ElasticJobs can be of the class nvtopo-protected"},
	})
}
