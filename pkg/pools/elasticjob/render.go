// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/release"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	// ExtraPriorityClass is the PriorityClass of extra replicas whose template names none
	// (manifests/pools/priority-class.yaml). The scheduler may evict them for any other pod.
	ExtraPriorityClass = "nvtopo-pool-extra"
	// rendezvousPort is torchrun's: https://docs.pytorch.org/docs/stable/elastic/run.html
	rendezvousPort = 29500
	// failuresPerReplica is the average number of failures per replica before the job has failed. One
	// that fails makes all others fail too, so the Job's default of 6 would be one bad hour of a job of
	// weeks. Evictions and lost nodes are not counted.
	failuresPerReplica = 20
	// maxExtras is the most replicas beyond minReplicas that the API server allows. The replicas'
	// variables allow for that many from the start: maxReplicas may be raised later, and a process
	// started with fewer would not let them join.
	maxExtras = 256
)

// Class is a WorkloadPriorityClass that a job needs.
type Class struct {
	Name  string
	Value int32
}

// Rendered is the wanted objects of an ElasticJob. They do not depend on existing objects.
type Rendered struct {
	Service *v1.Service
	Base    *batchv1.Job
	// Classes are the classes of the base and of the extras.
	Classes []Class

	ej    *v1alpha1.ElasticJob
	pool  *v1alpha1.ComputePool
	class Class // of the extras
}

// Render returns the objects of an ElasticJob in its pool. The template must be complete; the API server
// finds its other faults.
func Render(ej *v1alpha1.ElasticJob, pool *v1alpha1.ComputePool) *Rendered {
	priority := priorityOf(ej, pool)
	r := &Rendered{ej: ej, pool: pool}
	base := Class{Name: names.ProtectedClass, Value: names.ProtectedPriority}
	if !protected(ej) {
		base.Name, base.Value = names.PriorityClass(priority, names.RoleBase)
	}
	r.class.Name, r.class.Value = names.PriorityClass(priority, names.RoleExtra)
	r.Classes = []Class{base, r.class}
	r.Service = service(ej)
	r.Base = r.job(names.BaseJob(ej.Name), names.RoleBase, base.Name)
	r.completeBase()
	return r
}

// protected reports whether the job's minReplicas must not be preempted.
func protected(ej *v1alpha1.ElasticJob) bool {
	return ej.Spec.Preemptible != nil && !*ej.Spec.Preemptible
}

// priorityOf adds the priority of the job's queue to the job's own, which has no effect in a queue that
// admits in the order of arrival.
func priorityOf(ej *v1alpha1.ElasticJob, pool *v1alpha1.ComputePool) int32 {
	queue := queueOf(ej, pool)
	switch {
	case queue == nil:
		return ej.Spec.Priority
	case queue.Policy == v1alpha1.QueueFIFO:
		return queue.Priority
	}
	return queue.Priority + ej.Spec.Priority
}

// queueOf returns the pool's queue that the job names; nil if the pool does not have it.
func queueOf(ej *v1alpha1.ElasticJob, pool *v1alpha1.ComputePool) *v1alpha1.PoolQueue {
	i := slices.IndexFunc(pool.Spec.Queues, func(q v1alpha1.PoolQueue) bool { return q.Name == ej.Spec.Queue })
	if i < 0 {
		return nil
	}
	return &pool.Spec.Queues[i]
}

// selector selects the pods of a job.
func selector(ej *v1alpha1.ElasticJob) map[string]string {
	return map[string]string{names.LabelElasticJob: ej.Name}
}

// service returns the Service that gives the pods DNS names before they are ready, since they become
// ready only once they have found each other.
func service(ej *v1alpha1.ElasticJob) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: ej.Name, Namespace: ej.Namespace, Labels: selector(ej), OwnerReferences: owner(ej),
		},
		Spec: v1.ServiceSpec{
			ClusterIP: v1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: selector(ej),
			Ports: []v1.ServicePort{{Name: "rendezvous", Port: rendezvousPort}},
		},
	}
}

func owner(ej *v1alpha1.ElasticJob) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(ej, v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.ElasticJobKind))}
}

// job returns the common part of base and extra Jobs.
func (r *Rendered) job(name, role, class string) *batchv1.Job {
	ej := r.ej
	labels := selector(ej)
	labels[names.LabelRole] = role
	labels[v1alpha1.LabelPool] = ej.Spec.Pool
	t := *ej.Spec.Template.DeepCopy()
	t.Name, t.GenerateName, t.Namespace = "", "", ""
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	maps.Copy(t.Labels, labels)
	if !slices.Contains(t.Finalizers, names.FinalizerMetering) {
		t.Finalizers = append(t.Finalizers, names.FinalizerMetering)
	}
	if t.Spec.SchedulerName == "" {
		t.Spec.SchedulerName = release.Profile
	}
	if t.Spec.Subdomain == "" {
		t.Spec.Subdomain = ej.Name
	}
	maps.Copy(labels, r.kueueLabels(class))
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ej.Namespace, Labels: labels, OwnerReferences: owner(ej)},
		Spec: batchv1.JobSpec{
			Suspend:              new(true), // until Kueue admits it
			PodReplacementPolicy: new(batchv1.Failed),
			Template:             t,
		},
	}
}

// kueueLabels returns the labels of a Job that may change while the Job exists.
func (r *Rendered) kueueLabels(class string) map[string]string {
	labels := map[string]string{
		kueue.LabelQueue:         names.LocalQueue(r.ej.Spec.Pool, r.ej.Spec.Queue),
		kueue.LabelPriorityClass: class,
	}
	return labels
}

func (r *Rendered) completeBase() {
	ej, job := r.ej, r.Base
	replicas := ej.Spec.Scaling.MinReplicas
	if protected(ej) {
		job.Annotations = map[string]string{kueue.AnnotationAdmissionGatedBy: names.GateProtected}
	}
	if s := ej.Spec.MaxRunSeconds; s != nil {
		job.Labels[kueue.LabelMaxExecutionSeconds] = strconv.FormatInt(int64(*s), 10)
	}
	job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
	job.Spec.Parallelism, job.Spec.Completions = &replicas, &replicas
	job.Spec.BackoffLimit = new(failuresPerReplica * replicas)
	t := &job.Spec.Template
	if t.Spec.RestartPolicy == v1.RestartPolicyNever { // required by the API server for a failure policy
		job.Spec.PodFailurePolicy = onDisruption(batchv1.PodFailurePolicyActionIgnore)
	}
	annotate(t, gangOf(ej))
	annotate(t, messageOf(ej))
	environment(ej, t, v1.EnvVar{Name: "RANK", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{
		FieldPath: "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']",
	}}})
}

// Extra is the Job of replica i, which is minReplicas or more. Its pod is no member of the gang: the
// gang must never wait for it. It fails when its pod is evicted, so that it does not hold quota while it
// waits for a place; for that the pod must not be restarted in place.
func (r *Rendered) Extra(i int32) *batchv1.Job {
	name := names.ExtraJob(r.ej.Name, i)
	job := r.job(name, names.RoleExtra, r.class.Name)
	job.Spec.Parallelism, job.Spec.Completions = new(int32(1)), new(int32(1))
	job.Spec.BackoffLimit = new(int32(failuresPerReplica))
	job.Spec.PodFailurePolicy = onDisruption(batchv1.PodFailurePolicyActionFailJob)
	t := &job.Spec.Template
	t.Spec.RestartPolicy = v1.RestartPolicyNever
	t.Spec.Hostname = name
	if t.Spec.PriorityClassName == "" {
		t.Spec.PriorityClassName = ExtraPriorityClass
	}
	for _, key := range gangrequest.InputKeys() {
		delete(t.Annotations, key)
	}
	annotate(t, map[string]string{gangrequest.NearKey: gangName(r.ej)})
	annotate(t, messageOf(r.ej))
	environment(r.ej, t, v1.EnvVar{Name: "RANK", Value: strconv.FormatInt(int64(i), 10)})
	return job
}

// onDisruption returns the failure policy with one action for pods that were evicted or lost their node.
func onDisruption(action batchv1.PodFailurePolicyAction) *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action:          action,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
	}}}
}

func annotate(t *v1.PodTemplateSpec, annotations map[string]string) {
	if t.Annotations == nil {
		t.Annotations = map[string]string{}
	}
	maps.Copy(t.Annotations, annotations)
}

// gangName is the scheduler's name for the gang of the base's pods.
func gangName(ej *v1alpha1.ElasticJob) string { return names.BaseJob(ej.Name) }

// gangOf returns the gang annotations of the base's pods. They are the plain ones: a PodGroup would have
// to be kept beside the Job.
func gangOf(ej *v1alpha1.ElasticJob) map[string]string {
	gang := map[string]string{
		gangrequest.GangKey:     gangName(ej),
		gangrequest.GangSizeKey: strconv.FormatInt(int64(ej.Spec.Scaling.MinReplicas), 10),
	}
	if p := ej.Spec.Placement; p != nil {
		if p.Strategy != "" {
			gang[gangrequest.StrategyKey] = p.Strategy
		}
		if p.Required != "" {
			gang[gangrequest.RequiredKey] = p.Required
		}
	}
	return gang
}

// messageOf returns the annotation of all replicas with the size of the message that each device sends
// in an all-reduce; the scheduler compares nodes and gang plans by the time of that all-reduce. There is
// no annotation for the algorithm: the API admits only the one used in that comparison.
func messageOf(ej *v1alpha1.ElasticJob) map[string]string {
	if p := ej.Spec.Placement; p != nil && p.DataSizeMB > 0 {
		return map[string]string{gangrequest.MessageSizeKey: strconv.FormatInt(int64(p.DataSizeMB), 10) + "M"}
	}
	return nil
}

// environment adds the variables by which the replicas find each other. Variables that the template sets
// are kept.
func environment(ej *v1alpha1.ElasticJob, t *v1.PodTemplateSpec, rank v1.EnvVar) {
	ours := variables(ej, t.Spec.Subdomain, rank)
	for _, containers := range [][]v1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range containers {
			containers[i].Env = append(missing(ours, containers[i].Env), containers[i].Env...)
		}
	}
}

// variables returns the variables of a PyTorch process group, and torchrun's (PET_...): a range of nodes
// and the rendezvous endpoint, or one number of nodes and the replica's rank.
func variables(ej *v1alpha1.ElasticJob, subdomain string, rank v1.EnvVar) []v1.EnvVar {
	replicas := ej.Spec.Scaling.MinReplicas
	least, most := strconv.FormatInt(int64(replicas), 10), strconv.FormatInt(int64(replicas+maxExtras), 10)
	master, port := names.BaseJob(ej.Name)+"-0."+subdomain, strconv.Itoa(rendezvousPort)
	vars := []v1.EnvVar{
		rank,
		{Name: "MASTER_ADDR", Value: master},
		{Name: "MASTER_PORT", Value: port},
		{Name: "WORLD_SIZE", Value: least},
	}
	if staticRendezvous(ej) != "" {
		return append(vars,
			v1.EnvVar{Name: envNodes, Value: least},
			v1.EnvVar{Name: envNodeRank, Value: rank.Value, ValueFrom: rank.ValueFrom},
			v1.EnvVar{Name: "PET_MASTER_ADDR", Value: master},
			v1.EnvVar{Name: "PET_MASTER_PORT", Value: port})
	}
	return append(vars,
		v1.EnvVar{Name: envNodes, Value: least + ":" + most},
		v1.EnvVar{Name: "PET_RDZV_BACKEND", Value: "c10d"},
		v1.EnvVar{Name: "PET_RDZV_ENDPOINT", Value: master + ":" + port},
		v1.EnvVar{Name: "PET_RDZV_ID", Value: string(ej.UID)})
}

// missing returns those of our variables that a container does not set. They come first, so that the
// container's own may refer to them.
func missing(ours, env []v1.EnvVar) []v1.EnvVar {
	return slices.DeleteFunc(slices.Clone(ours), func(v v1.EnvVar) bool {
		return slices.ContainsFunc(env, func(e v1.EnvVar) bool { return e.Name == v.Name })
	})
}
