// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"maps"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

func TestRenderBase(t *testing.T) {
	ej := newJob(func(ej *v1alpha1.ElasticJob) {
		ej.Spec.MaxRunSeconds = new(int32(3600))
		ej.Spec.Placement = &v1alpha1.JobPlacement{Strategy: "communication_heavy", Required: "rack"}
	})
	index := &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
	replicas := int32(2)
	want := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "train-base", Namespace: "team-a",
			Labels: map[string]string{
				"pool.nvtopo.dev/elasticjob": "train", "pool.nvtopo.dev/role": "base", "pool.nvtopo.dev/pool": "pool",
				"kueue.x-k8s.io/queue-name": "pool", "kueue.x-k8s.io/priority-class": "nvtopo-p5", "kueue.x-k8s.io/max-exec-time-seconds": "3600",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "pool.nvtopo.dev/v1alpha1", Kind: "ElasticJob", Name: "train", UID: "u1", Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: batchv1.JobSpec{
			Suspend: new(true), CompletionMode: new(batchv1.IndexedCompletion), Parallelism: &replicas, Completions: &replicas,
			BackoffLimit: new(int32(40)), PodReplacementPolicy: new(batchv1.Failed),
			PodFailurePolicy: onDisruption(batchv1.PodFailurePolicyActionIgnore),
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: map[string]string{
						"pool.nvtopo.dev/elasticjob": "train", "pool.nvtopo.dev/role": "base", "pool.nvtopo.dev/pool": "pool",
					},
					Annotations: map[string]string{
						"nvtopo.dev/gang": "train-base", "nvtopo.dev/gang-size": "2",
						"nvtopo.dev/placement-strategy": "communication_heavy", "nvtopo.dev/required-topology": "rack",
					},
					Finalizers: []string{"pool.nvtopo.dev/metering"},
				},
				Spec: v1.PodSpec{
					SchedulerName: "topology-aware-scheduler", Subdomain: "train", RestartPolicy: v1.RestartPolicyNever,
					Containers: []v1.Container{{Name: "main", Image: "example.com/train", Env: []v1.EnvVar{
						{Name: "RANK", ValueFrom: index},
						{Name: "MASTER_ADDR", Value: "train-base-0.train"},
						{Name: "MASTER_PORT", Value: "29500"},
						{Name: "WORLD_SIZE", Value: "2"},
						{Name: "PET_NNODES", Value: "2:258"},
						{Name: "PET_RDZV_BACKEND", Value: "c10d"},
						{Name: "PET_RDZV_ENDPOINT", Value: "train-base-0.train:29500"},
						{Name: "PET_RDZV_ID", Value: "u1"},
					}}},
				},
			},
		},
	}
	if diff := cmp.Diff(want, Render(ej, newPool()).Base); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRenderExtra(t *testing.T) {
	ej := newJob(func(ej *v1alpha1.ElasticJob) {
		ej.Spec.Preemptible = new(false)
		ej.Spec.MaxRunSeconds = new(int32(3600))
		ej.Spec.Template.Annotations = map[string]string{gangrequest.StrategyKey: "mixed", "example.com/a": "b"}
		ej.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	})
	job := Render(ej, newPool()).Extra(3)
	wantLabels := map[string]string{
		"pool.nvtopo.dev/elasticjob": "train", "pool.nvtopo.dev/role": "extra", "pool.nvtopo.dev/pool": "pool",
		"kueue.x-k8s.io/queue-name": "pool", "kueue.x-k8s.io/priority-class": "nvtopo-extra-p5",
	}
	if diff := cmp.Diff(wantLabels, job.Labels); diff != "" {
		t.Errorf("labels (-want +got)\n%s", diff)
	}
	wantAnnotations := map[string]string{"nvtopo.dev/near": "train-base", "example.com/a": "b"}
	if diff := cmp.Diff(wantAnnotations, job.Spec.Template.Annotations); diff != "" {
		t.Errorf("annotations of the pod (-want +got)\n%s", diff)
	}
	if len(job.Annotations) > 0 {
		t.Errorf("annotations %v: an extra is never protected", job.Annotations)
	}
	pod := &job.Spec.Template.Spec
	if job.Name != "train-x3" || pod.Hostname != "train-x3" || pod.PriorityClassName != ExtraPriorityClass || pod.RestartPolicy != v1.RestartPolicyNever {
		t.Errorf("%s: host %s, class %s, restart %s", job.Name, pod.Hostname, pod.PriorityClassName, pod.RestartPolicy)
	}
	if *job.Spec.Parallelism != 1 || *job.Spec.Completions != 1 || !*job.Spec.Suspend {
		t.Errorf("spec %+v", job.Spec)
	}
	if got := pod.Containers[0].Env[0]; got.Name != "RANK" || got.Value != "3" {
		t.Errorf("environment begins with %+v", got)
	}
}

// TestRenderPlacement: every field of spec.placement is passed to the scheduler, or admits one
// value only.
func TestRenderPlacement(t *testing.T) {
	tests := map[string]struct {
		placement v1alpha1.JobPlacement
		want      map[string]string // of the base, beside those of every gang
		wantExtra map[string]string
	}{
		"Strategy":  {placement: v1alpha1.JobPlacement{Strategy: "compute-heavy"}, want: map[string]string{gangrequest.StrategyKey: "compute-heavy"}},
		"Required":  {placement: v1alpha1.JobPlacement{Required: "rack"}, want: map[string]string{gangrequest.RequiredKey: "rack"}},
		"Algorithm": {placement: v1alpha1.JobPlacement{Algorithm: "ring"}},
		"DataSizeMB": {
			placement: v1alpha1.JobPlacement{DataSizeMB: 100},
			want:      map[string]string{gangrequest.MessageSizeKey: "100M"}, wantExtra: map[string]string{gangrequest.MessageSizeKey: "100M"},
		},
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.JobPlacement]()) {
		if _, tested := tests[field.Name]; !tested {
			t.Errorf("what becomes of placement field %s is not tested", field.Name)
		}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			rendered := Render(newJob(func(ej *v1alpha1.ElasticJob) { ej.Spec.Placement = &tc.placement }), newPool())
			got := maps.Clone(rendered.Base.Spec.Template.Annotations)
			maps.DeleteFunc(got, func(key, _ string) bool { return key == gangrequest.GangKey || key == gangrequest.GangSizeKey })
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("annotations of the base (-want +got)\n%s", diff)
			}
			got = maps.Clone(rendered.Extra(3).Spec.Template.Annotations)
			delete(got, gangrequest.NearKey)
			if diff := cmp.Diff(tc.wantExtra, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("annotations of an extra (-want +got)\n%s", diff)
			}
		})
	}
}

// TestRenderMessageSize: the scheduler parses the largest size that the API admits correctly.
func TestRenderMessageSize(t *testing.T) {
	ej := newJob(func(ej *v1alpha1.ElasticJob) { ej.Spec.Placement = &v1alpha1.JobPlacement{DataSizeMB: 10_000_000} })
	got, err := podrequest.ParseMessageSize(messageOf(ej)[gangrequest.MessageSizeKey])
	if err != nil || got != 10_000_000_000_000 {
		t.Errorf("the scheduler reads %d bytes, %v, want 10 TB", got, err)
	}
}

// TestRenderTemplateValues: the template's values are kept in the rendered pods.
func TestRenderTemplateValues(t *testing.T) {
	ej := newJob(func(ej *v1alpha1.ElasticJob) {
		spec := &ej.Spec.Template.Spec
		ej.Spec.Template.Name = "mine"
		ej.Spec.Template.Finalizers = []string{"example.com/f", names.FinalizerMetering}
		spec.SchedulerName, spec.Subdomain, spec.PriorityClassName = "default-scheduler", "mine", "high"
		spec.Containers[0].Env = []v1.EnvVar{{Name: "MASTER_PORT", Value: "1234"}, {Name: "URL", Value: "http://$(MASTER_ADDR)"}}
		spec.InitContainers = []v1.Container{{Name: "init"}}
	})
	rendered := Render(ej, newPool())
	for name, job := range map[string]*batchv1.Job{"base": rendered.Base, "extra": rendered.Extra(2)} {
		tmpl := &job.Spec.Template
		if tmpl.Name != "" || len(tmpl.Finalizers) != 2 {
			t.Errorf("%s: name %q, finalizers %v", name, tmpl.Name, tmpl.Finalizers)
		}
		if tmpl.Spec.SchedulerName != "default-scheduler" || tmpl.Spec.Subdomain != "mine" || tmpl.Spec.PriorityClassName != "high" {
			t.Errorf("%s: %s, %s, %s", name, tmpl.Spec.SchedulerName, tmpl.Spec.Subdomain, tmpl.Spec.PriorityClassName)
		}
		ports := map[string]int{}
		for _, e := range tmpl.Spec.Containers[0].Env {
			ports[e.Name]++
			if e.Name == "MASTER_ADDR" && e.Value != "train-base-0.mine" || e.Name == "MASTER_PORT" && e.Value != "1234" {
				t.Errorf("%s: %s=%s", name, e.Name, e.Value)
			}
		}
		if ports["MASTER_PORT"] != 1 || tmpl.Spec.Containers[0].Env[len(tmpl.Spec.Containers[0].Env)-1].Name != "URL" {
			t.Errorf("%s: environment %v", name, tmpl.Spec.Containers[0].Env)
		}
		if len(tmpl.Spec.InitContainers[0].Env) == 0 {
			t.Errorf("%s: the init container knows nothing of the others", name)
		}
	}
	if len(ej.Spec.Template.Labels) > 0 || len(ej.Spec.Template.Spec.InitContainers[0].Env) > 0 {
		t.Error("the ElasticJob itself was changed")
	}
}

func TestRenderStaticEnvironment(t *testing.T) {
	ej := newJob(func(ej *v1alpha1.ElasticJob) { ej.Spec.Scaling.Rendezvous = v1alpha1.RendezvousStatic })
	got := map[string]string{}
	for _, e := range Render(ej, newPool()).Base.Spec.Template.Spec.Containers[0].Env {
		got[e.Name] = e.Value
	}
	want := map[string]string{
		"RANK": "", "MASTER_ADDR": "train-base-0.train", "MASTER_PORT": "29500", "WORLD_SIZE": "2",
		"PET_NNODES": "2", "PET_NODE_RANK": "", "PET_MASTER_ADDR": "train-base-0.train", "PET_MASTER_PORT": "29500",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestRenderRestartInPlace: the Job does not see a restart in place, so the API server refuses the
// policy.
func TestRenderRestartInPlace(t *testing.T) {
	ej := newJob(func(ej *v1alpha1.ElasticJob) { ej.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyOnFailure })
	rendered := Render(ej, newPool())
	if rendered.Base.Spec.PodFailurePolicy != nil || rendered.Base.Spec.Template.Spec.RestartPolicy != v1.RestartPolicyOnFailure {
		t.Errorf("the base has %+v and restarts %s", rendered.Base.Spec.PodFailurePolicy, rendered.Base.Spec.Template.Spec.RestartPolicy)
	}
}

func TestRenderPriorities(t *testing.T) {
	queues := func(p *v1alpha1.ComputePool) {
		p.Spec.Queues = []v1alpha1.PoolQueue{
			{Name: "high", Priority: 100, Policy: v1alpha1.QueueFairShare}, {Name: "fifo", Priority: 7, Policy: v1alpha1.QueueFIFO},
		}
	}
	tests := map[string]struct {
		queue     string
		priority  int32
		protected bool
		want      []Class
		wantQueue string
		wantGate  map[string]string
	}{
		"a pool without queues":              {priority: -5, want: []Class{{"nvtopo-n5", -5}, {"nvtopo-extra-n5", -1_000_005}}, wantQueue: "pool"},
		"the queue's is added":               {queue: "high", priority: 5, want: []Class{{"nvtopo-p105", 105}, {"nvtopo-extra-p105", -999_895}}, wantQueue: "pool.high"},
		"in the order of arrival all are as": {queue: "fifo", priority: 5, want: []Class{{"nvtopo-p7", 7}, {"nvtopo-extra-p7", -999_993}}, wantQueue: "pool.fifo"},
		"a job that must not be preempted": {
			queue: "high", priority: 5, protected: true, want: []Class{{"nvtopo-protected", 1_000_000}, {"nvtopo-extra-p105", -999_895}},
			wantQueue: "pool.high", wantGate: map[string]string{kueue.AnnotationAdmissionGatedBy: names.GateProtected},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ej := newJob(func(ej *v1alpha1.ElasticJob) {
				ej.Spec.Queue, ej.Spec.Priority, ej.Spec.Preemptible = tc.queue, tc.priority, new(!tc.protected)
			})
			got := Render(ej, newPool(queues))
			if diff := cmp.Diff(tc.want, got.Classes); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if got.Base.Labels[kueue.LabelQueue] != tc.wantQueue || got.Base.Labels[kueue.LabelPriorityClass] != tc.want[0].Name {
				t.Errorf("labels %v", got.Base.Labels)
			}
			if !maps.Equal(got.Base.Annotations, tc.wantGate) {
				t.Errorf("annotations %v, want %v", got.Base.Annotations, tc.wantGate)
			}
		})
	}
}

// TestRenderLongestNames: the hostname of the last replica fits a DNS label.
func TestRenderLongestNames(t *testing.T) {
	const longest = "a234567890123456789012345678901234567890123456789012" // the API server takes 52
	ej := newJob(func(ej *v1alpha1.ElasticJob) { ej.Name = longest })
	if n := len(Render(ej, newPool()).Extra(4351).Spec.Template.Spec.Hostname); n > 63 {
		t.Errorf("the host of an extra has %d characters", n)
	}
	if n := len(names.BaseJob(longest) + "-4095"); n > 63 {
		t.Errorf("the host of the last replica of the base has %d characters", n)
	}
}
