// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const (
	// hostileTenant tries to exceed its limit, beside tenants that do not.
	hostileTenant = "h"
	// hostileLimit is its limit; it has no guarantee.
	hostileLimit = 4
	// hostileAttacks is the number of its attacks.
	hostileAttacks = 80
	// ownFinalizer is a finalizer that the tenant tries to put on its objects.
	ownFinalizer = "example.com/stays"
)

// hostile creates, changes and deletes jobs and pods of the hostile tenant at random. An attack may be
// refused or not; the recorder checks at every event that the tenant stays within its limit.
type hostile struct {
	s      *scenario
	seed   uint64
	client client.Client
	random *rand.Rand
	made   int
	tally  map[string][2]int // by kind of attack: allowed, refused
}

// harass begins the attacks of the hostile tenant, with its client. stop waits for their end, and removes
// all of the tenant's objects, as an operator would.
func (s *scenario) harass(t *testing.T, tenant client.Client, seed uint64) (stop func()) {
	t.Helper()
	h := &hostile{s: s, seed: seed, client: tenant, random: rand.New(rand.NewPCG(seed, 23)), tally: map[string][2]int{}}
	if err := s.priorityClass(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.run(t.Context())
	}()
	t.Cleanup(func() { <-done })
	return func() {
		t.Helper()
		<-done
		h.tell(t)
		s.evict(t, hostileTenant)
		var most int64
		s.recorder.read(s.name, func(a *account) { most = a.occupied[s.tenant(hostileTenant)] })
		if most > hostileLimit {
			t.Errorf("the pods of the hostile tenant had %d devices at some time, with those that were ending; its limit is %d", most, hostileLimit)
		}
	}
}

// tell logs which attacks were allowed and which were refused.
func (h *hostile) tell(t *testing.T) {
	t.Helper()
	var let, refused int
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(h.tally)) {
		n := h.tally[kind]
		let, refused = let+n[0], refused+n[1]
		lines = append(lines, fmt.Sprintf("%s %d/%d", kind, n[0], n[1]))
	}
	t.Logf("the hostile tenant: %d let, %d refused (%s)", let, refused, strings.Join(lines, ", "))
	if let == 0 || refused == 0 {
		t.Errorf("of the hostile tenant's attacks %d were let and %d refused, want some of both", let, refused)
	}
}

// evict deletes all objects of a tenant.
func (s *scenario) evict(t *testing.T, tenant string) {
	t.Helper()
	in := client.InNamespace(s.tenant(tenant))
	at := client.PropagationPolicy(metav1.DeletePropagationBackground)
	s.waitFor(t, "all that tenant "+tenant+" has is gone", func(ctx context.Context) (bool, string) {
		var errs []error
		for _, o := range []client.Object{&poolv1alpha1.ElasticJob{}, &appsv1.Deployment{}, &appsv1.ReplicaSet{}, &batchv1.Job{}} {
			errs = append(errs, s.DeleteAllOf(ctx, o, in, at))
		}
		errs = append(errs, s.DeleteAllOf(ctx, &v1.Pod{}, in))
		var pods v1.PodList
		left := 0
		for _, list := range []client.ObjectList{&poolv1alpha1.ElasticJobList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &batchv1.JobList{}, &pods} {
			errs = append(errs, s.List(ctx, list, in))
			left += meta.LenList(list)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if free := pod.DeepCopy(); slices.Contains(pod.Finalizers, ownFinalizer) || pod.Annotations[devcluster.AnnotationLingers] != "" {
				free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == ownFinalizer })
				delete(free.Annotations, devcluster.AnnotationLingers)
				errs = append(errs, client.IgnoreNotFound(s.Patch(ctx, free, client.MergeFrom(pod))))
			}
		}
		err := errors.Join(errs...)
		return err == nil && left == 0, fmt.Sprintf("%d objects, %d pods, %v", left, len(pods.Items), err)
	})
}

// attacker returns a client of a user with the rights of edit in the namespace of the hostile tenant, and
// to create elastic jobs.
func (s *scenario) attacker(t *testing.T) client.Client {
	t.Helper()
	rules := append(rulesOf(s.clusterRoles(t), "edit"), rbacv1.PolicyRule{
		APIGroups: []string{poolv1alpha1.SchemeGroupVersion.Group}, Resources: []string{"elasticjobs"}, Verbs: []string{rbacv1.VerbAll},
	})
	person := s.personWith(t, hostileTenant, "attacks", rules)
	s.waitFor(t, "the hostile tenant may make jobs", func(ctx context.Context) (bool, string) {
		err := person.List(ctx, &poolv1alpha1.ElasticJobList{}, client.InNamespace(s.tenant(hostileTenant)))
		return err == nil, errorText(err)
	})
	return person
}

func (h *hostile) run(ctx context.Context) {
	attacks := map[string]func(context.Context) error{
		"job": h.job, "bare pod": h.pod, "pod group": h.group, "deployment": h.deployment, "elastic job": h.elastic,
		"change of a pod": h.changePod, "change of a job": h.changeJob, "change of a workload": h.changeWorkload,
		"change of an elastic job": h.changeElastic, "deletion of a job": h.deleteJob, "deletion of a pod": h.deletePod,
	}
	kinds := slices.Sorted(maps.Keys(attacks))
	for range hostileAttacks {
		kind := kinds[h.random.IntN(len(kinds))]
		err := attacks[kind](ctx)
		n := h.tally[kind]
		switch {
		case err == nil:
			n[0]++
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			n[1]++
		}
		h.tally[kind] = n
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(h.random.IntN(120)) * time.Millisecond):
		}
	}
}

func (h *hostile) name(of string) string {
	h.made++
	return fmt.Sprintf("%s%d-%d", of, h.seed, h.made)
}

// one returns a random element.
func one[T any](h *hostile, of ...T) T { return of[h.random.IntN(len(of))] }

// template sets random fields of a pod template as a tenant might.
func (h *hostile) template(spec *v1.PodSpec, about *metav1.ObjectMeta) {
	about.Annotations = map[string]string{}
	if h.random.IntN(2) == 0 {
		about.Annotations[devcluster.AnnotationRunsFor] = time.Duration(h.random.IntN(4000) * int(time.Millisecond)).String()
	}
	if h.random.IntN(4) == 0 {
		about.Annotations[devcluster.AnnotationLingers] = "true"
	}
	if h.random.IntN(4) == 0 {
		spec.TerminationGracePeriodSeconds = new(one(h, int64(0), int64(600), int64(3600)))
	}
	if h.random.IntN(6) == 0 {
		spec.PriorityClassName = one(h, "system-cluster-critical", "nvtopo-pool-extra")
	}
	if h.random.IntN(8) == 0 {
		spec.SchedulingGates = []v1.PodSchedulingGate{{Name: one(h, "kueue.x-k8s.io/admission", "example.com/mine")}}
	}
}

func (h *hostile) job(ctx context.Context) error {
	job := h.s.jobObject(hostileTenant, h.name("j"), &work{pods: 1 + h.random.Int32N(4), gpus: 1 + h.random.Int64N(4)})
	h.template(&job.Spec.Template.Spec, &job.Spec.Template.ObjectMeta)
	switch h.random.IntN(6) {
	case 0:
		job.Spec.Completions = nil
	case 1:
		job.Spec.Parallelism = new(int32(14))
	case 2:
		job.Spec.Suspend = new(false)
	case 3:
		job.Annotations = map[string]string{one(h, "kueue.x-k8s.io/elastic-job", "kueue.x-k8s.io/workload-slice-name", "kueue.x-k8s.io/stopping"): "true"}
	}
	return h.client.Create(ctx, job)
}

// queued returns a pod with the tenant's queue.
func (h *hostile) queued(gpus int64) *v1.Pod {
	pod := gpuPod(h.s.tenant(hostileTenant), h.name("p"), gpus).Label(kueue.LabelQueue, h.s.name).Obj()
	h.template(&pod.Spec, &pod.ObjectMeta)
	return pod
}

func (h *hostile) pod(ctx context.Context) error {
	pod := h.queued(1 + h.random.Int64N(6))
	switch h.random.IntN(6) {
	case 0:
		delete(pod.Labels, kueue.LabelQueue)
	case 1:
		pod.Labels["kueue.x-k8s.io/managed"] = one(h, "true", "false")
	case 2:
		pod.Spec.NodeName = h.s.nodes[0]
	case 3:
		pod.Annotations["kueue.x-k8s.io/pod-suspending-parent"] = "deployment"
	}
	return h.client.Create(ctx, pod)
}

func (h *hostile) group(ctx context.Context) error {
	name := h.name("g")
	for _, gpus := range []int64{1, 4, 4} {
		pod := h.queued(gpus)
		pod.Labels[kueue.LabelPodGroup] = name
		pod.Annotations["kueue.x-k8s.io/pod-group-total-count"] = "3"
		pod.Annotations["kueue.x-k8s.io/pod-group-fast-admission"] = "true"
		pod.Annotations["kueue.x-k8s.io/role-hash"] = "alike"
		if err := h.client.Create(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

func (h *hostile) deployment(ctx context.Context) error {
	labels := map[string]string{"app": h.name("d")}
	about := metav1.ObjectMeta{Namespace: h.s.tenant(hostileTenant), Name: labels["app"], Labels: map[string]string{}}
	if h.random.IntN(3) > 0 {
		about.Labels[kueue.LabelQueue] = h.s.name
	}
	spec := gpuPod("", "", 1+h.random.Int64N(4)).Obj().Spec
	spec.RestartPolicy = v1.RestartPolicyAlways
	template := v1.PodTemplateSpec{Spec: spec}
	h.template(&template.Spec, &template.ObjectMeta)
	template.Labels = labels
	selector := &metav1.LabelSelector{MatchLabels: labels}
	if h.random.IntN(3) == 0 {
		return h.client.Create(ctx, &appsv1.ReplicaSet{ObjectMeta: about, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3)), Selector: selector, Template: template}})
	}
	return h.client.Create(ctx, &appsv1.Deployment{ObjectMeta: about, Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector, Template: template}})
}

func (h *hostile) elastic(ctx context.Context) error {
	least := 1 + h.random.Int32N(3)
	job := &poolv1alpha1.ElasticJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.s.tenant(hostileTenant), Name: h.name("e")},
		Spec: poolv1alpha1.ElasticJobSpec{
			Pool: h.s.name, Priority: h.random.Int32N(21) - 10, Preemptible: new(h.random.IntN(2) == 0),
			Scaling: poolv1alpha1.Scaling{MinReplicas: least, MaxReplicas: least + h.random.Int32N(8), GPUPerReplica: 1 << h.random.IntN(3)},
		},
	}
	job.Spec.Template.Spec.Containers = []v1.Container{{Name: "main", Image: "example.com/train"}}
	h.template(&job.Spec.Template.Spec, &job.Spec.Template.ObjectMeta)
	return h.client.Create(ctx, job)
}

func (h *hostile) changeElastic(ctx context.Context) error {
	return h.patch(ctx, &poolv1alpha1.ElasticJobList{},
		`{"spec":{"scaling":{"maxReplicas":20}}}`, `{"spec":{"scaling":{"minReplicas":6,"maxReplicas":6}}}`, `{"spec":{"preemptible":false}}`,
		`{"spec":{"suspend":true}}`, `{"spec":{"suspend":false}}`, `{"spec":{"priority":10}}`,
	)
}

// patch changes one of the tenant's objects.
func (h *hostile) patch(ctx context.Context, list client.ObjectList, patches ...string) error {
	o, err := h.any(ctx, list)
	if o == nil || err != nil {
		return err
	}
	return h.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(one(h, patches...))))
}

var errNothing = errors.New("the tenant has none")

// any returns a random object of the tenant of a kind.
func (h *hostile) any(ctx context.Context, list client.ObjectList) (client.Object, error) {
	if err := h.s.List(ctx, list, client.InNamespace(h.s.tenant(hostileTenant))); err != nil {
		return nil, fmt.Errorf("list what the hostile tenant has: %w", err)
	}
	var all []client.Object
	switch list := list.(type) {
	case *v1.PodList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *batchv1.JobList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *poolv1alpha1.ElasticJobList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *kueue.WorkloadList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	if len(all) == 0 {
		return nil, errNothing
	}
	return one(h, all...), nil
}

func (h *hostile) changePod(ctx context.Context) error {
	return h.patch(ctx, &v1.PodList{},
		`{"metadata":{"labels":{"kueue.x-k8s.io/managed":null}}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}}}`,
		`{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":null,"controller-uid":null}}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/priority-class":"nvtopo-protected"}}}`,
		`{"metadata":{"ownerReferences":null}}`,
		`{"metadata":{"finalizers":null}}`,
		fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, ownFinalizer),
		`{"metadata":{"annotations":{"kueue.x-k8s.io/safe-to-forcefully-delete":"true"}}}`,
		`{"metadata":{"annotations":{"example.com/note":"mine"}}}`,
		`{"spec":{"schedulingGates":null}}`,
		`{"spec":{"terminationGracePeriodSeconds":1}}`,
	)
}

func (h *hostile) changeJob(ctx context.Context) error {
	return h.patch(ctx, &batchv1.JobList{},
		`{"spec":{"parallelism":14}}`,
		`{"spec":{"parallelism":14,"completions":14}}`,
		`{"spec":{"suspend":true,"parallelism":4}}`,
		`{"spec":{"suspend":true}}`,
		`{"spec":{"suspend":false}}`,
		`{"spec":{"parallelism":1}}`,
		`{"spec":{"completions":1}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"elsewhere"}}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/priority-class":"nvtopo-protected"}}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/prebuilt-workload-name":"mine"}}}`,
		`{"metadata":{"annotations":{"kueue.x-k8s.io/elastic-job":"true"}}}`,
		`{"metadata":{"annotations":{"kueue.x-k8s.io/admission-gated-by":null}}}`,
		fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, ownFinalizer),
	)
}

func (h *hostile) changeWorkload(ctx context.Context) error {
	return h.patch(ctx, &kueue.WorkloadList{},
		`{"spec":{"active":false}}`, `{"spec":{"priority":1000000}}`, `{"metadata":{"finalizers":null}}`,
		`{"metadata":{"ownerReferences":null}}`, `{"metadata":{"labels":{"kueue.x-k8s.io/job-uid":"other"}}}`,
	)
}

func (h *hostile) deleteJob(ctx context.Context) error {
	o, err := h.any(ctx, &batchv1.JobList{})
	if o == nil || err != nil {
		return err
	}
	return h.client.Delete(ctx, o, client.PropagationPolicy(one(h, metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground,
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground)))
}

func (h *hostile) deletePod(ctx context.Context) error {
	o, err := h.any(ctx, &v1.PodList{})
	if o == nil || err != nil {
		return err
	}
	return h.client.Delete(ctx, o, client.GracePeriodSeconds(one(h, 0, 1, 1, 30, 3600)))
}
