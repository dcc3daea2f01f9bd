// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// write is an attempted write of a tenant, as a dry run.
type write struct {
	try func(context.Context, client.Client) error
	// want is part of the refusal; empty: it is allowed, and docs/pools-tenants.md explains why that is no
	// cheat.
	want string
	// unless is part of the refusal for a user with the rights of edit, if that is another one: a missing
	// permission.
	unless string
}

const (
	onlyKueue = "only Kueue writes this"
	noGroups  = "Kueue believes a pod group"
	noRight   = "cannot "
	classless = "would evict others"
)

// TestTenantWrites checks each label, annotation, field and gate through which a Pod, Job, Workload or
// LocalQueue can influence quota, preemption or bills: it is refused to a tenant, or the tenant may write
// it, and it has its stated effect. The tenant is tried as a user with the rights of edit, and as a user
// with all rights in the namespace. docs/pools-tenants.md has the same table for users.
func TestTenantWrites(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a")
	s.yaml(t, oneQueue)
	owner, editor := s.ownerOf(t, "a"), s.editor(t)
	s.job(t, "a", "runs", work{gpus: 1})
	open := s.jobObject("a", "open", &work{gpus: 1})
	open.Spec.Completions = nil
	s.tenantJob(t, owner, open)
	for _, name := range []string{"runs", "open"} {
		s.running(t, "a", name, 1)
	}
	s.job(t, "a", "waits", work{gpus: 4})
	s.waits(t, "a", "waits")
	bound, gated := s.queued("bound", 2), s.queued("gated", 4)
	for _, pod := range []*v1.Pod{bound, gated} {
		if err := owner.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	s.runs(t, bound)
	for name, tc := range s.writes(t, bound, gated) {
		for who, person := range map[string]client.Client{"owner": owner, "edit": editor} {
			want := tc.want
			if who == "edit" && tc.unless != "" {
				want = tc.unless
			}
			err := tc.try(t.Context(), person)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, as %s: the answer is %q, want %q in it", name, who, errorText(err), want)
			}
		}
	}
	if got := s.counts("a"); got.bound != 4 {
		t.Errorf("the tenant holds %d devices, and its quota is 4", got.bound)
	}
}

// writes returns all attempts of the tenant.
func (s *scenario) writes(t *testing.T, bound, gated *v1.Pod) map[string]write {
	t.Helper()
	all := map[string]write{}
	for _, part := range []map[string]write{
		s.podKeyWrites(bound), s.podFieldWrites(t, bound, gated), s.jobKeyWrites(), s.jobFieldWrites(t), s.kueueWrites(t), s.otherWrites(),
	} {
		for name, w := range part {
			if _, twice := all[name]; twice {
				t.Fatalf("%s is there twice", name)
			}
			all[name] = w
		}
	}
	return all
}

// newPod tries to create a pod, and newJob a Job.
func (s *scenario) newPod(change func(*v1.Pod)) func(context.Context, client.Client) error {
	pod := s.queued("another", 4)
	pod.Annotations = map[string]string{}
	change(pod)
	return makes(pod)
}

func (s *scenario) newJob(change func(*batchv1.Job)) func(context.Context, client.Client) error {
	job := s.jobObject("a", "another", &work{gpus: 4})
	job.Annotations, job.Spec.Template.Labels, job.Spec.Template.Annotations = map[string]string{}, map[string]string{}, map[string]string{}
	change(job)
	return makes(job)
}

// jobNamed returns a Job to patch.
func (s *scenario) jobNamed(name string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant("a"), Name: name}}
}

// marked returns a patch of one label or annotation; an empty value removes it.
func marked(field, key, value string) string {
	quoted := "null"
	if value != "" {
		quoted = fmt.Sprintf("%q", value)
	}
	return fmt.Sprintf(`{"metadata":{%q:{%q:%s}}}`, field, key, quoted)
}

// statusPatch tries to change the status of an object.
func statusPatch(o client.Object, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		copied, _ := o.DeepCopyObject().(client.Object)
		return c.Status().Patch(ctx, copied, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
}

// deletes tries to delete an object. An empty policy leaves the propagation to its default.
func deletes(o client.Object, policy metav1.DeletionPropagation, more ...client.DeleteOption) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		copied, _ := o.DeepCopyObject().(client.Object)
		options := append([]client.DeleteOption{client.DryRunAll}, more...)
		if policy != "" {
			options = append(options, client.PropagationPolicy(policy))
		}
		return c.Delete(ctx, copied, options...)
	}
}

// kueueWrites returns writes of Workloads and LocalQueues, to which edit has no right.
func (s *scenario) kueueWrites(t *testing.T) map[string]write {
	t.Helper()
	w, err := s.workload(t.Context(), "a", "waits") // once a job runs, Kueue refuses some of it, too
	if err != nil || w == nil {
		t.Fatal(w, err)
	}
	const active, change = "a tenant changes spec.active alone", "change the ComputePool"
	own := w.DeepCopy()
	own.ObjectMeta = metav1.ObjectMeta{Name: "own", Namespace: w.Namespace}
	own.Spec.Priority = new(int32(9_000_000))
	queue := func(labels map[string]string) *kueue.LocalQueue {
		return &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: s.tenant("a"), Labels: labels}, Spec: kueue.LocalQueueSpec{ClusterQueue: s.name},
		}
	}
	there := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: s.tenant("a")}}
	return map[string]write{
		"Workload of its own":                   {try: makes(own), want: active, unless: noRight},
		"Workload, its priority":                {try: patches(w, `{"spec":{"priority":9000000}}`), want: active, unless: noRight},
		"Workload, its class":                   {try: patches(w, `{"spec":{"priorityClassRef":null}}`), want: active, unless: noRight},
		"Workload, its queue":                   {try: patches(w, `{"spec":{"queueName":"other"}}`), want: active, unless: noRight},
		"Workload, what is counted":             {try: patches(w, `{"spec":{"podSets":[{"name":"main","count":1,"template":{"spec":{"containers":[{"name":"main","image":"example.com/train"}]}}}]}}`), want: active, unless: noRight},
		"Workload, how long it may run":         {try: patches(w, `{"spec":{"maximumExecutionTimeSeconds":9}}`), want: active, unless: noRight},
		"Workload, gates of its preemptions":    {try: patches(w, `{"spec":{"preemptionGates":[{"name":"example.com/a"}]}}`), want: active, unless: noRight},
		"Workload, active":                      {try: patches(w, `{"spec":{"active":false}}`), unless: noRight},
		"Workload, a boost":                     {try: patches(w, marked("annotations", "kueue.x-k8s.io/priority-boost", "9")), want: onlyKueue, unless: noRight},
		"Workload, what it replaces":            {try: patches(w, marked("annotations", "kueue.x-k8s.io/workload-slice-replacement-for", "x")), want: onlyKueue, unless: noRight},
		"Workload, another job":                 {try: patches(w, `{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"runs","uid":"x","controller":true}]}}`), want: active, unless: noRight},
		"Workload, Kueue's finalizer":           {try: patches(w, `{"metadata":{"finalizers":null}}`), want: "metadata.finalizers", unless: noRight},
		"Workload, its status":                  {try: statusPatch(w, `{"status":{"reclaimablePods":null}}`), unless: noRight},
		"Workload, deleted":                     {try: deletes(w, metav1.DeletePropagationBackground), unless: noRight},
		"LocalQueue of its own":                 {try: makes(queue(nil)), unless: noRight},
		"LocalQueue that looks like a pool's":   {try: makes(queue(map[string]string{names.LabelManaged: s.name})), want: change, unless: noRight},
		"LocalQueue, to become a pool's":        {try: patches(there, marked("labels", names.LabelManaged, s.name)), want: change, unless: noRight},
		"LocalQueue, deleted":                   {try: deletes(there, metav1.DeletePropagationBackground), unless: noRight},
		"ClusterQueue of its own":               {try: makes(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-own"}}), want: noRight},
		"WorkloadPriorityClass of its own":      {try: makes(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-own"}, Value: 9}), want: noRight},
		"Workload, labels of somebody else's":   {try: patches(w, marked("labels", "example.com/a", "b")), unless: noRight},
		"Workload, another's gate before quota": {try: patches(w, marked("annotations", kueue.AnnotationAdmissionGatedBy, "example.com/a")), want: kueue.AnnotationAdmissionGatedBy, unless: noRight},
	}
}

// otherWrites returns writes of other objects that affect quota or bills.
func (s *scenario) otherWrites() map[string]write {
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.tenant("a")}}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[0]}}
	graph := &topologyv1alpha1.NodeGPUTopology{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[0]}}
	return map[string]write{
		"namespace, its tenant": {try: patches(namespace, marked("labels", "pool.nvtopo.dev/tenant", "other")), want: "says whose quota", unless: noRight},
		"node, its pool":        {try: patches(node, marked("labels", "pool.nvtopo.dev/pool", "other")), want: noRight},
		"node, its devices":     {try: patches(graph, `{"spec":{"gpus":[]}}`), want: noRight},
	}
}
