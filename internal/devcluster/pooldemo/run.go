// SPDX-License-Identifier: Apache-2.0

package pooldemo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/devcluster/demo"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	group = poolv1alpha1.GroupName + "/v1alpha1"
	gpu   = topologyv1alpha1.DefaultResource

	// sceneTimeout bounds the wait for one scene, which takes some seconds.
	sceneTimeout = 2 * time.Minute
	pollInterval = 100 * time.Millisecond
	// steady is for how long what a scene promises has to stay so.
	steady = 3 * time.Second

	elastic = "llm"
)

// run is the state of one demo.
type run struct {
	client   kubernetes.Interface
	dyn      dynamic.Interface
	watch    *watch
	progress io.Writer
	report   *Report
}

// Run plays all scenes on a booted cluster of Nodes with Kueue; controller is the path of the pool
// controller. An error means that the demo could not be carried through; what was wrong is in the
// report.
func Run(ctx context.Context, c *devcluster.Cluster, controller string, progress io.Writer) (*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{progress: progress, report: &Report{}}
	var err error
	if r.client, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if r.dyn, err = dynamic.NewForConfig(c.RESTConfig()); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if err := demo.WarmUp(ctx, r.client, Nodes()); err != nil {
		return nil, fmt.Errorf("waiting for the scheduler: %w", err)
	}
	fmt.Fprintln(progress, "starting the pool controller, and making a pool of 64 GPUs that three tenants share")
	if err := Start(ctx, c, controller); err != nil {
		return nil, err
	}
	if r.watch, err = startWatch(ctx, r.client); err != nil {
		return nil, err
	}
	if err := r.makePool(ctx); err != nil {
		return nil, err
	}
	for _, scene := range []func(context.Context) error{r.alone, r.together, r.grows, r.shrinks, r.growsAgain, r.invoices} {
		if err := scene(ctx); err != nil {
			return nil, err
		}
	}
	wrong, checks := r.watch.verdict()
	r.report.problems = append(r.report.problems, wrong...)
	r.report.checks = checks
	return r.report, nil
}

func (r *run) makePool(ctx context.Context) error {
	for _, o := range objects() {
		if err := r.create(ctx, o); err != nil {
			return err
		}
	}
	return r.until(ctx, "the pool is ready", func(ctx context.Context) (bool, error) {
		p, err := r.dyn.Resource(poolv1alpha1.ComputePoolGVR).Get(ctx, pool, metav1.GetOptions{})
		if err != nil {
			return false, err // until names what it waits for
		}
		phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
		return phase == string(poolv1alpha1.PoolReady), nil
	})
}

// alone: one tenant has more work than its limit.
func (r *run) alone(ctx context.Context) error {
	all := tenants()
	if err := r.backlog(ctx, all[0], 60); err != nil {
		return err
	}
	return r.scene(ctx, "team-a comes with 60 jobs of one GPU and has the pool for itself, up to its limit", map[string]int64{all[0].name: all[0].limit})
}

// together: all tenants have.
func (r *run) together(ctx context.Context) error {
	want := map[string]int64{}
	for i, t := range tenants() {
		want[t.name] = t.share
		if i == 0 {
			continue
		}
		if err := r.backlog(ctx, t, 40); err != nil {
			return err
		}
	}
	title := "team-b and team-c come with 40 each: who has more than his share gives back, and what is not guaranteed is shared 3:2:1"
	if err := r.scene(ctx, title, want); err != nil {
		return err
	}
	for _, t := range tenants() {
		background := metav1.DeletePropagationBackground
		err := r.client.BatchV1().Jobs(t.name).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("end the jobs of %s: %w", t.name, err)
		}
	}
	return r.holds(ctx, map[string]int64{})
}

// grows: a job is alone.
func (r *run) grows(ctx context.Context) error {
	err := r.create(ctx, object(group, "ElasticJob", "team-a", elastic, nil, map[string]any{
		"pool":    pool,
		"scaling": map[string]any{"minReplicas": int64(2), "maxReplicas": int64(6), "gpuPerReplica": int64(8)},
		"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "main", "image": "example.com/train"},
		}}},
	}))
	if err != nil {
		return err
	}
	if err := r.scene(ctx, "those jobs end; an elastic job of team-a, two to six times eight GPUs, grows into the idle pool", map[string]int64{"team-a": 48}); err != nil {
		return err
	}
	return r.replicas(ctx, 6)
}

// shrinks: another tenant asks for what is guaranteed to it.
func (r *run) shrinks(ctx context.Context) error {
	base, err := r.basePods(ctx)
	if err != nil {
		return err
	}
	for i := range 2 {
		if err := r.job(ctx, "team-b", fmt.Sprintf("claim-%d", i), 8); err != nil {
			return err
		}
	}
	title := "team-b asks for its guaranteed 16: eight are idle, and the elastic job gives up a replica for the others"
	if err := r.scene(ctx, title, map[string]int64{"team-a": 40, "team-b": 16}); err != nil {
		return err
	}
	after, err := r.basePods(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(base, after) {
		r.report.problem("%s: the pods of its minReplicas are not those that they were", elastic)
	}
	return r.replicas(ctx, 5)
}

// growsAgain: the other tenant's jobs end.
func (r *run) growsAgain(ctx context.Context) error {
	if err := r.finish(ctx, "team-b", ""); err != nil {
		return err
	}
	if err := r.scene(ctx, "team-b's jobs end, and the elastic job grows again", map[string]int64{"team-a": 48}); err != nil {
		return err
	}
	if err := r.finish(ctx, "team-a", names.BaseJob(elastic)); err != nil {
		return err
	}
	return r.holds(ctx, map[string]int64{})
}

// scene waits until tenants hold what is promised, and for a while hold nothing else.
func (r *run) scene(ctx context.Context, title string, want map[string]int64) error {
	fmt.Fprintln(r.progress, title)
	before := r.watch.deleted()
	if err := r.holds(ctx, want); err != nil {
		return err
	}
	pods, by := r.watch.now()
	waiting, err := r.waiting(ctx)
	if err != nil {
		return err
	}
	lines := []string{title}
	for tenant, n := range r.watch.deleted() {
		if n -= before[tenant]; n > 0 {
			lines = append(lines, fmt.Sprintf("  %d pods of %s were evicted", n, tenant))
		}
	}
	r.report.scene(strings.Join(lines, "\n"), pods, by, waiting)
	return nil
}

// holds waits until tenants hold so many GPUs, steadily. That they do not is a problem of the
// report.
func (r *run) holds(ctx context.Context, want map[string]int64) error {
	since := time.Time{}
	err := r.until(ctx, fmt.Sprintf("tenants hold %v", want), func(context.Context) (bool, error) {
		if _, by := r.watch.now(); !maps.Equal(by, want) {
			since = time.Time{}
			return false, nil
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) >= steady, nil
	})
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	_, by := r.watch.now()
	r.report.problem("tenants hold %v, want %v", by, want)
	return nil
}

// replicas waits until the elastic job says that it has so many.
func (r *run) replicas(ctx context.Context, want int64) error {
	var got int64
	err := r.until(ctx, "replicas", func(ctx context.Context) (bool, error) {
		job, err := r.dyn.Resource(poolv1alpha1.ElasticJobGVR).Namespace("team-a").Get(ctx, elastic, metav1.GetOptions{})
		if err != nil {
			return false, err // until names what it waits for
		}
		got, _, _ = unstructured.NestedInt64(job.Object, "status", "replicas")
		return got == want, nil
	})
	if err != nil && ctx.Err() == nil {
		r.report.problem("%s says that it has %d replicas, want %d", elastic, got, want)
	}
	return ctx.Err()
}

// basePods are the UIDs of the elastic job's base.
func (r *run) basePods(ctx context.Context) (out []types.UID, err error) {
	list, err := r.client.CoreV1().Pods("team-a").List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + names.BaseJob(elastic)})
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", elastic, err)
	}
	for i := range list.Items {
		out = append(out, list.Items[i].UID)
	}
	slices.Sort(out)
	return out, nil
}

// waiting counts the jobs of each tenant that are suspended.
func (r *run) waiting(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	for _, t := range tenants() {
		list, err := r.client.BatchV1().Jobs(t.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list the jobs of %s: %w", t.name, err)
		}
		for i := range list.Items {
			if s := list.Items[i].Spec.Suspend; s != nil && *s {
				out[t.name]++
			}
		}
	}
	return out, nil
}

// backlog makes n jobs of one GPU.
func (r *run) backlog(ctx context.Context, t tenant, n int) error {
	for i := range n {
		if err := r.job(ctx, t.name, fmt.Sprintf("job-%d", i), 1); err != nil {
			return err
		}
	}
	return nil
}

// job makes a job of one pod, which runs until it is told to end.
func (r *run) job(ctx context.Context, namespace, name string, gpus int64) error {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{kueue.LabelQueue: names.LocalQueue(pool, "")}},
		Spec: batchv1.JobSpec{Suspend: new(true), BackoffLimit: new(int32(1000)), Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
			SchedulerName: "topology-aware-scheduler", RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{Name: "main", Image: "example.com/train", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)},
			}}},
		}}},
	}
	if _, err := r.client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make job %s/%s: %w", namespace, name, err)
	}
	return nil
}

// finish lets the running pods of a tenant succeed, or those of one job.
func (r *run) finish(ctx context.Context, namespace, job string) error {
	var o metav1.ListOptions
	if job != "" {
		o.LabelSelector = batchv1.JobNameLabel + "=" + job
	}
	list, err := r.client.CoreV1().Pods(namespace).List(ctx, o)
	if err != nil {
		return fmt.Errorf("list the pods of %s: %w", namespace, err)
	}
	patch := []byte(`{"metadata":{"annotations":{"` + devcluster.AnnotationRunsFor + `":"0s"}}}`)
	for i := range list.Items {
		if list.Items[i].Status.Phase != v1.PodRunning {
			continue
		}
		if _, err := r.client.CoreV1().Pods(namespace).Patch(ctx, list.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("let pod %s succeed: %w", list.Items[i].Name, err)
		}
	}
	return nil
}

// create makes an object of one of the demo's kinds.
func (r *run) create(ctx context.Context, fields map[string]any) error {
	o := &unstructured.Unstructured{Object: fields}
	plural := map[string]string{
		"Namespace": "namespaces", "TenantAccount": poolv1alpha1.TenantAccountResource, "PriceBook": poolv1alpha1.PriceBookResource,
		"ComputePool": poolv1alpha1.ComputePoolResource, "ElasticJob": poolv1alpha1.ElasticJobResource,
	}[o.GetKind()]
	var where dynamic.ResourceInterface = r.dyn.Resource(schema.GroupVersionResource{
		Group: o.GroupVersionKind().Group, Version: o.GroupVersionKind().Version, Resource: plural,
	})
	if o.GetNamespace() != "" {
		where = r.dyn.Resource(o.GroupVersionKind().GroupVersion().WithResource(plural)).Namespace(o.GetNamespace())
	}
	if _, err := where.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// until asks until the answer is yes. An API server that is busy is asked again.
func (r *run) until(ctx context.Context, what string, done wait.ConditionWithContextFunc) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, sceneTimeout, true, func(ctx context.Context) (bool, error) {
		var yes bool
		yes, last = done(ctx)
		return yes && last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, errors.Join(err, last))
	}
	return nil
}

// decoded reads a list of objects into their type.
func decoded[T any](ctx context.Context, objects dynamic.ResourceInterface) ([]T, error) {
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	out := make([]T, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &out[i]); err != nil {
			return nil, fmt.Errorf("read %s: %w", list.Items[i].GetName(), err)
		}
	}
	return out, nil
}
