// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// podKeyWrites returns writes of labels and annotations of pods.
func (s *scenario) podKeyWrites(bound *v1.Pod) map[string]write {
	out := map[string]write{
		"pod, a queue":                          {try: s.newPod(func(*v1.Pod) {})},
		"pod, a queue of nobody":                {try: s.newPod(func(p *v1.Pod) { p.Labels[kueue.LabelQueue] = "nowhere" })},
		"pod, no queue":                         {try: s.newPod(func(p *v1.Pod) { delete(p.Labels, kueue.LabelQueue) })},
		"bound pod, another queue":              {try: patches(bound, marked("labels", kueue.LabelQueue, "other")), want: "field is immutable"},
		"pod, a priority among jobs":            {try: s.newPod(func(p *v1.Pod) { p.Labels[kueue.LabelPriorityClass] = "nvtopo-p0" })},
		"pod, the class of protected jobs":      {try: s.newPod(func(p *v1.Pod) { p.Labels[kueue.LabelPriorityClass] = names.ProtectedClass }), want: "only the pool controller gives or takes it"},
		"pod, managed":                          {try: s.newPod(func(p *v1.Pod) { p.Labels["kueue.x-k8s.io/managed"] = "false" })},
		"pod, a hash, which only groups have":   {try: s.newPod(func(p *v1.Pod) { p.Annotations["kueue.x-k8s.io/role-hash"] = "x" })},
		"pod, a parent that suspends it":        {try: s.newPod(func(p *v1.Pod) { p.Annotations["kueue.x-k8s.io/pod-suspending-parent"] = "deployment" })},
		"pod, a rack of Kueue's":                {try: s.newPod(func(p *v1.Pod) { p.Annotations["kueue.x-k8s.io/podset-required-topology"] = "rack" })},
		"bound pod, managed no more":            {try: patches(bound, marked("labels", "kueue.x-k8s.io/managed", "")), want: onlyKueue},
		"bound pod, another hash":               {try: patches(bound, marked("annotations", "kueue.x-k8s.io/role-hash", "x")), want: onlyKueue},
		"bound pod, Kueue's finalizer":          {try: patches(bound, `{"metadata":{"finalizers":null}}`), want: "metadata.finalizers"},
		"bound pod, by its status":              {try: statusPatch(bound, marked("labels", "kueue.x-k8s.io/managed", "")), want: onlyKueue, unless: noRight},
		"pod of a job, the label of its job":    {try: s.ofJob(marked("labels", batchv1.ControllerUidLabel, "")), want: "keep the pod with its job"},
		"pod of a job, the name of its job":     {try: s.ofJob(marked("labels", batchv1.JobNameLabel, "x")), want: "keep the pod with its job"},
		"pod of a job, no owner":                {try: s.ofJob(`{"metadata":{"ownerReferences":null}}`), want: "stays the job's"},
		"bound pod, an output of nvtopo's":      {try: patches(bound, marked("annotations", "nvtopo.dev/allocation", "{}")), want: "nvtopo.dev/allocation"},
		"bound pod, a label of somebody else's": {try: patches(bound, marked("labels", "example.com/a", "b"))},
	}
	for _, key := range []string{"pod-group-name", "pod-group-pod-index", "pod-group-pod-index-label"} {
		out["pod, label "+key] = write{try: s.newPod(func(p *v1.Pod) { p.Labels["kueue.x-k8s.io/"+key] = "1" }), want: "kueue.x-k8s.io/pod-group-"}
	}
	for _, key := range []string{"pod-group-name", "pod-group-total-count", "pod-group-fast-admission", "pod-group-serving"} {
		out["pod, annotation "+key] = write{try: s.newPod(func(p *v1.Pod) { p.Annotations["kueue.x-k8s.io/"+key] = "1" }), want: "kueue.x-k8s.io/pod-group-"}
		out["bound pod, annotation "+key] = write{try: patches(bound, marked("annotations", "kueue.x-k8s.io/"+key, "1")), want: "kueue.x-k8s.io/pod-group-"}
	}
	for _, key := range keysOfKueue() {
		out["pod, label "+key] = write{try: s.newPod(func(p *v1.Pod) { p.Labels["kueue.x-k8s.io/"+key] = "x" }), want: "kueue.x-k8s.io/" + key}
		out["pod, annotation "+key] = write{try: s.newPod(func(p *v1.Pod) { p.Annotations["kueue.x-k8s.io/"+key] = "x" }), want: "kueue.x-k8s.io/" + key}
		out["bound pod, annotation "+key] = write{try: patches(bound, marked("annotations", "kueue.x-k8s.io/"+key, "x")), want: "kueue.x-k8s.io/" + key}
	}
	return out
}

// keysOfKueue returns keys below kueue.x-k8s.io that Kueue 0.19.2 reads or writes on jobs, pods and
// Workloads, and that no tenant writes; the last one stands for those of later releases. Those of pod
// groups begin with pod-group-.
func keysOfKueue() []string {
	return []string{
		"retriable-in-group", "is-group-workload", "prebuilt-workload-name", "elastic-job", "workload-slice-name",
		"workload-slice-replacement-for", "safe-to-forcefully-delete", "workload", "podset", "local-queue-name", "cluster-queue-name",
		"priority-boost", "stopping", "job-uid", "job-owner-gvk", "job-owner-name", "component-workload-index", "multikueue-origin",
		"workload-allowed-resource-flavors", "concurrent-admission-parent", "of-a-later-release",
	}
}

// ofJob tries to change a pod of the running job.
func (s *scenario) ofJob(patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		var pods v1.PodList
		if err := s.List(ctx, &pods, client.InNamespace(s.tenant("a")), client.MatchingLabels{batchv1.JobNameLabel: "runs"}); err != nil || len(pods.Items) == 0 {
			return fmt.Errorf("find the pod of the job: %w", err)
		}
		return patches(&pods.Items[0], patch)(ctx, c)
	}
}

// podFieldWrites returns writes of fields of pods, their gates, and their subresources.
func (s *scenario) podFieldWrites(t *testing.T, bound, gated *v1.Pod) map[string]write {
	t.Helper()
	running := s.pods(t, "a", "runs")[0]
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: gated.Name}, Target: v1.ObjectReference{Kind: "Node", Name: s.nodes[0]}}
	return map[string]write{
		"pod, a PriorityClass":                {try: s.newPod(func(p *v1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }), want: classless},
		"pod, the PriorityClass of extras":    {try: s.newPod(func(p *v1.Pod) { p.Spec.PriorityClassName = "nvtopo-pool-extra" })},
		"pod, a priority":                     {try: s.newPod(func(p *v1.Pod) { p.Spec.Priority = new(int32(9)) }), want: "must not be provided"},
		"pod, a node of its own":              {try: s.newPod(func(p *v1.Pod) { p.Spec.NodeName = s.nodes[0] }), want: "until all schedulingGates have been cleared"},
		"pod, another scheduler":              {try: s.newPod(func(p *v1.Pod) { p.Spec.SchedulerName = "default-scheduler" })},
		"pod, an owner that is counted":       {try: s.newPod(func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{*metav1.GetControllerOf(running)} }), want: "so only the Job controller makes it"},
		"pod, a gate of its own":              {try: s.newPod(func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/a"}} })},
		"gated pod, its gates":                {try: patches(gated, `{"spec":{"schedulingGates":null}}`), want: "Kueue removes its gate"},
		"gated pod, a node":                   {try: binds(gated, binding), want: "schedulingGates", unless: noRight},
		"bound pod, more devices":             {try: patches(bound, `{"spec":{"containers":[{"name":"main","image":"example.com/train","resources":{"limits":{"nvidia.com/gpu":"8"}}}]}}`), want: "pod updates may not change fields"},
		"bound pod, a status that has ended":  {try: statusPatch(bound, `{"status":{"phase":"Succeeded"}}`), unless: noRight},
		"bound pod, an owner that is counted": {try: patches(bound, ownedBy(running)), want: "so only the Job controller makes it"},
		"bound pod, deleted":                  {try: deletes(bound, metav1.DeletePropagationBackground)},
		"pod, a status at once":               {try: s.newPod(func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })},
		"pod, devices in an init container": {try: s.newPod(func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{*p.Spec.Containers[0].DeepCopy()}
			p.Spec.InitContainers[0].Name = "init"
		})},
		"pod of a job, deleted":               {try: deletes(running, metav1.DeletePropagationOrphan), want: "one of a Job, which is replaced while it ends"},
		"pod of a job, deleted by force":      {try: deletes(running, "", client.GracePeriodSeconds(0)), want: "not by force"},
		"pod of a job, deleted in a second":   {try: deletes(running, metav1.DeletePropagationOrphan, client.GracePeriodSeconds(1))},
		"pod, devices by default, LimitRange": {try: makes(s.defaults("nvidia.com/gpu")), want: "spec.limits: nvidia.com/gpu", unless: noRight},
		"pod, CPUs by default, LimitRange":    {try: makes(s.defaults("cpu")), unless: noRight},
	}
}

// binds tries to bind a pod.
func binds(pod *v1.Pod, binding *v1.Binding) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.SubResource("binding").Create(ctx, pod.DeepCopy(), binding.DeepCopy(), client.DryRunAll)
	}
}

// ownedBy returns a patch that gives a pod the controller of another.
func ownedBy(pod *v1.Pod) string {
	o := metav1.GetControllerOf(pod)
	return fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"controller":true}]}}`, o.APIVersion, o.Kind, o.Name, o.UID)
}

// ownedByKind returns a patch that gives a Job a controller of a kind of apps.
func ownedByKind(s *scenario, kind string) string {
	return fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":%q,"name":%q,"uid":"x","controller":true}]}}`, kind, s.name)
}

// defaults returns a LimitRange that gives containers of the tenant a resource that they do not request.
func (s *scenario) defaults(name v1.ResourceName) *v1.LimitRange {
	some := v1.ResourceList{name: resource.MustParse("1")}
	return &v1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "defaults", Namespace: s.tenant("a")},
		Spec:       v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{{Type: v1.LimitTypeContainer, Default: some, DefaultRequest: some}}},
	}
}

// jobKeyWrites returns writes of labels and annotations of Jobs and of their templates.
func (s *scenario) jobKeyWrites() map[string]write {
	runs, waits := s.jobNamed("runs"), s.jobNamed("waits")
	out := map[string]write{
		"job, a queue":                     {try: s.newJob(func(*batchv1.Job) {})},
		"running job, another queue":       {try: patches(runs, marked("labels", kueue.LabelQueue, "other")), want: "field is immutable"},
		"waiting job, another queue":       {try: patches(waits, marked("labels", kueue.LabelQueue, "other"))},
		"running job, another priority":    {try: patches(runs, marked("labels", kueue.LabelPriorityClass, "nvtopo-p5"))},
		"running job, no priority":         {try: patches(runs, marked("labels", kueue.LabelPriorityClass, "")), want: "cannot be removed"},
		"running job, protected":           {try: patches(runs, marked("labels", kueue.LabelPriorityClass, names.ProtectedClass)), want: "only the pool controller gives or takes it"},
		"job, how long it may run":         {try: s.newJob(func(j *batchv1.Job) { j.Labels[kueue.LabelMaxExecutionSeconds] = "60" })},
		"running job, how long it may run": {try: patches(runs, marked("labels", kueue.LabelMaxExecutionSeconds, "60")), want: "field is immutable"},
		"job, a gate before quota":         {try: s.newJob(func(j *batchv1.Job) { j.Annotations[kueue.AnnotationAdmissionGatedBy] = "example.com/budget" })},
		"running job, a gate before quota": {try: patches(runs, marked("annotations", kueue.AnnotationAdmissionGatedBy, "example.com/budget")), want: kueue.AnnotationAdmissionGatedBy},
		"job, fewer pods where quota is few": {try: s.newJob(func(j *batchv1.Job) {
			j.Spec.Parallelism, j.Spec.Completions = new(int32(4)), new(int32(4))
			j.Annotations["kueue.x-k8s.io/job-min-parallelism"] = "1"
		})},
		"job, managed":                       {try: s.newJob(func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/managed"] = "true" }), want: onlyKueue},
		"job, a hash":                        {try: s.newJob(func(j *batchv1.Job) { j.Annotations["kueue.x-k8s.io/role-hash"] = "x" }), want: onlyKueue},
		"template, a group":                  {try: s.newJob(func(j *batchv1.Job) { j.Spec.Template.Labels[kueue.LabelPodGroup] = "x" }), want: noGroups},
		"template, managed":                  {try: s.newJob(func(j *batchv1.Job) { j.Spec.Template.Labels["kueue.x-k8s.io/managed"] = "true" }), want: onlyKueue},
		"template, a parent":                 {try: s.newJob(func(j *batchv1.Job) { j.Spec.Template.Annotations["kueue.x-k8s.io/pod-suspending-parent"] = "x" }), want: onlyKueue},
		"waiting job, a key of its template": {try: patches(waits, `{"spec":{"template":{"metadata":{"labels":{"kueue.x-k8s.io/managed":"true"}}}}}`), want: onlyKueue},
		"job, an elastic job of ours":        {try: s.newJob(func(j *batchv1.Job) { j.Labels[names.LabelElasticJob] = "x" })},
	}
	for _, key := range keysOfKueue() {
		out["job, label "+key] = write{try: s.newJob(func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/"+key] = "x" }), want: "kueue.x-k8s.io/" + key}
		out["job, annotation "+key] = write{try: s.newJob(func(j *batchv1.Job) { j.Annotations["kueue.x-k8s.io/"+key] = "x" }), want: "kueue.x-k8s.io/" + key}
		out["running job, annotation "+key] = write{try: patches(runs, marked("annotations", "kueue.x-k8s.io/"+key, "x")), want: "kueue.x-k8s.io/" + key}
	}
	return out
}

// jobFieldWrites returns writes of fields of Jobs, and their deletions.
func (s *scenario) jobFieldWrites(t *testing.T) map[string]write {
	t.Helper()
	runs, waits := s.jobNamed("runs"), s.jobNamed("waits")
	var running batchv1.Job
	s.get(t, &running, runs.Namespace, runs.Name)
	const gone = "the pods of a tenant's job go with it"
	return map[string]write{
		"running job, more pods":                           {try: patches(runs, `{"spec":{"parallelism":14}}`), want: "so many are never needed"},
		"running job, suspended":                           {try: patches(runs, `{"spec":{"suspend":true}}`), want: "Kueue would start the job again"},
		"job without completions, more pods":               {try: patches(s.jobNamed("open"), `{"spec":{"parallelism":14}}`), want: "14 pods at a time, and the job runs with quota for 1"},
		"job without completions, more pods and suspended": {try: patches(s.jobNamed("open"), `{"spec":{"parallelism":14,"suspend":true}}`)},
		"waiting job, fewer pods at a time":                {try: patches(waits, `{"spec":{"parallelism":0}}`)},
		"waiting job, started":                             {try: patches(waits, `{"spec":{"suspend":false}}`), want: "Kueue starts the jobs of tenants"},
		"job, started":                                     {try: s.newJob(func(j *batchv1.Job) { j.Spec.Suspend = new(false) })},
		"job, more at a time than in all":                  {try: s.newJob(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(8)) }), want: "so many are never needed"},
		"job, a selector of its own":                       {try: s.newJob(ownSelector), want: "spec.manualSelector"},
		"job, a controller of its own":                     {try: s.newJob(func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.com/mine") })},
		"job, an owner that is counted": {try: s.newJob(func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&running, batchv1.SchemeGroupVersion.WithKind("Job"))}
		}), want: "so only the Job controller makes it"},
		"job, a PriorityClass": {try: s.newJob(func(j *batchv1.Job) { j.Spec.Template.Spec.PriorityClassName = "system-cluster-critical" }), want: classless},
		"job, a gate in its template": {try: s.newJob(func(j *batchv1.Job) {
			j.Spec.Template.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/a"}}
		})},
		"running job, more devices":             {try: patches(runs, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.com/train","resources":{"limits":{"nvidia.com/gpu":"8"}}}]}}}}`), want: "field is immutable"},
		"running job, a status that has ended":  {try: statusPatch(runs, `{"status":{"ready":0}}`), unless: noRight},
		"running job, deleted without its pods": {try: deletes(runs, metav1.DeletePropagationOrphan), want: gone},
		"running job, deleted and nothing said": {try: deletes(runs, ""), want: gone},
		"running job, a finalizer":              {try: patches(runs, `{"metadata":{"finalizers":["example.com/stays"]}}`), want: "a tenant's job has none"},
		"running job, another owner":            {try: patches(runs, ownedByKind(s, "StatefulSet")), want: "so only the Job controller makes it"},
		"job, an owner that Kueue does not know": {try: s.newJob(func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Workflow", Name: "x", UID: "x", Controller: new(true)}}
		})},
		"running job, deleted":                 {try: deletes(runs, metav1.DeletePropagationForeground)},
		"Deployment, a PriorityClass":          {try: makes(s.servedBy("system-cluster-critical")), want: classless},
		"Deployment":                           {try: makes(s.servedBy(""))},
		"Deployment, an owner that is counted": {try: makes(s.ownedDeployment(&running)), want: "so only the Job controller makes it"},
		"CronJob, a PriorityClass":             {try: makes(s.cronJob("system-cluster-critical")), want: classless},
		"CronJob":                              {try: makes(s.cronJob(""))},
	}
}

func ownSelector(j *batchv1.Job) {
	j.Spec.ManualSelector, j.Spec.Selector = new(true), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	j.Spec.Template.Labels["app"] = "x"
}

func (s *scenario) servedBy(class string) *appsv1.Deployment {
	template := s.jobObject("a", "served", &work{gpus: 1}).Spec.Template
	template.Labels = map[string]string{"app": "served"}
	template.Spec.RestartPolicy, template.Spec.PriorityClassName = v1.RestartPolicyAlways, class
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "served", Namespace: s.tenant("a"), Labels: map[string]string{kueue.LabelQueue: s.name}},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "served"}}, Template: template},
	}
}

func (s *scenario) ownedDeployment(job *batchv1.Job) *appsv1.Deployment {
	d := s.servedBy("")
	d.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	return d
}

func (s *scenario) cronJob(class string) *batchv1.CronJob {
	job := s.jobObject("a", "nightly", &work{gpus: 1})
	job.Spec.Template.Spec.PriorityClassName = class
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: s.tenant("a")},
		Spec: batchv1.CronJobSpec{
			Schedule: "0 0 * * *", JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: job.Labels}, Spec: job.Spec},
		},
	}
}
