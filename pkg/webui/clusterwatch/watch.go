// SPDX-License-Identifier: Apache-2.0

package clusterwatch

import (
	"context"
	"slices"
	"sync"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// Config configures a Watch.
type Config struct {
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	// LeaseNamespace is the namespace of the Leases of exporters and agents.
	LeaseNamespace string
	// Schedulers are the schedulers whose pods are explained, and Resources those whose devices they choose;
	// nil: the ones published by the leading scheduler, see explain.World.UseProfiles.
	Schedulers, Resources []string
	Clock                 clock.PassiveClock
}

// held is a kind of any type.
type held interface {
	run(ctx context.Context)
	settled() bool
	problems() []string
}

// Watch holds the objects of a cluster while it runs.
type Watch struct {
	config Config
	kinds  []held

	nodes      *kind[v1.Node]
	pods       *kind[v1.Pod]
	namespaces *kind[v1.Namespace]
	leases     *kind[coordinationv1.Lease]
	published  *kind[v1.ConfigMap]
	budgets    *kind[policyv1.PodDisruptionBudget]
	jobs       *kind[batchv1.Job]
	claims     *kind[v1.PersistentVolumeClaim]
	classes    *kind[storagev1.StorageClass]
	topologies *kind[v1alpha1.NodeGPUTopology]
	fabrics    *kind[v1alpha1.ClusterTopology]
	groups     *kind[schedulingv1alpha1.PodGroup]
	workloads  *kind[kueue.Workload]
	queues     *kind[kueue.LocalQueue]
	quotas     *kind[kueue.ClusterQueue]
	pools      *kind[poolv1alpha1.ComputePool]

	mu      sync.Mutex
	version int64
}

// New makes a Watch that holds nothing until it runs.
func New(c Config) (*Watch, error) {
	w := &Watch{config: c}
	b := &builder{Watch: w}
	core, all := c.Kube.CoreV1(), metav1.NamespaceAll
	w.nodes = typed(b, "nodes", core.Nodes(), &v1.Node{}, nil)
	w.pods = typed(b, "pods", core.Pods(all), &v1.Pod{}, nil)
	w.namespaces = typed(b, "namespaces", core.Namespaces(), &v1.Namespace{}, nil)
	w.leases = typed(b, "leases", c.Kube.CoordinationV1().Leases(c.LeaseNamespace), &coordinationv1.Lease{}, revived)
	w.published = typed(b, "configmap "+diagnosis.ProfilesName, oneOf{c.Kube.CoreV1().ConfigMaps(c.LeaseNamespace), diagnosis.ProfilesName}, &v1.ConfigMap{}, nil)
	w.budgets = typed(b, "poddisruptionbudgets", c.Kube.PolicyV1().PodDisruptionBudgets(all), &policyv1.PodDisruptionBudget{}, nil)
	w.jobs = typed(b, "jobs", c.Kube.BatchV1().Jobs(all), &batchv1.Job{}, nil)
	w.claims = typed(b, "persistentvolumeclaims", core.PersistentVolumeClaims(all), &v1.PersistentVolumeClaim{}, nil)
	w.classes = typed(b, "storageclasses", c.Kube.StorageV1().StorageClasses(), &storagev1.StorageClass{}, nil)
	w.topologies = custom[v1alpha1.NodeGPUTopology](b, v1alpha1.GroupVersionResource)
	w.fabrics = custom[v1alpha1.ClusterTopology](b, v1alpha1.ClusterTopologyGVR)
	w.groups = custom[schedulingv1alpha1.PodGroup](b, schedulingv1alpha1.SchemeGroupVersion.WithResource("podgroups"))
	w.workloads = custom[kueue.Workload](b, kueue.SchemeGroupVersion.WithResource("workloads"))
	w.queues = custom[kueue.LocalQueue](b, kueue.SchemeGroupVersion.WithResource("localqueues"))
	w.quotas = custom[kueue.ClusterQueue](b, kueue.SchemeGroupVersion.WithResource("clusterqueues"))
	w.pools = custom[poolv1alpha1.ComputePool](b, poolv1alpha1.ComputePoolGVR)
	return w, b.err
}

// builder adds kinds to a Watch, and keeps the first error.
type builder struct {
	*Watch

	err error
}

// object is a pointer to a Kubernetes object type.
type object[T any] interface {
	*T
	runtime.Object
}

func typed[T any, P object[T], L runtime.Object](b *builder, name string, c collection[L], example P, significant func(before, after *T) bool) *kind[T] {
	k, err := watching(name, c, b.config.Kube, example, significant, b.change)
	return added(b, k, err)
}

// oneOf lists and watches the ConfigMap of one name.
type oneOf struct {
	corev1client.ConfigMapInterface

	name string
}

func (o oneOf) List(ctx context.Context, opts metav1.ListOptions) (*v1.ConfigMapList, error) {
	return o.ConfigMapInterface.List(ctx, o.only(opts))
}

func (o oneOf) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return o.ConfigMapInterface.Watch(ctx, o.only(opts))
}

func (o oneOf) only(opts metav1.ListOptions) metav1.ListOptions {
	opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, o.name).String()
	return opts
}

func custom[T any](b *builder, resource schema.GroupVersionResource) *kind[T] {
	k, err := watching[T](resource.Resource, b.config.Dynamic.Resource(resource), b.config.Dynamic, &unstructured.Unstructured{}, nil, b.change)
	return added(b, k, err)
}

func added[T any](b *builder, k *kind[T], err error) *kind[T] {
	if err != nil && b.err == nil {
		b.err = err
	}
	b.kinds = append(b.kinds, k)
	return k
}

// revived reports whether a Lease differs by more than a renewal in time: most updates are such renewals,
// and expiry is computed from a clock.
func revived(before, after *coordinationv1.Lease) bool {
	b, a := before.Spec, after.Spec
	if b.RenewTime == nil || a.RenewTime == nil || b.LeaseDurationSeconds == nil || a.LeaseDurationSeconds == nil || *b.LeaseDurationSeconds != *a.LeaseDurationSeconds {
		return true
	}
	until := b.RenewTime.Add(time.Duration(*b.LeaseDurationSeconds) * time.Second)
	same := slices.EqualFunc(before.OwnerReferences, after.OwnerReferences, func(x, y metav1.OwnerReference) bool { return x.UID == y.UID })
	return !same || a.RenewTime.After(until) || a.RenewTime.Time.Before(b.RenewTime.Time)
}

func (w *Watch) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
}

// Version returns the number of changes of objects.
func (w *Watch) Version() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version
}

// Run watches until ctx ends, and returns when all its goroutines have ended.
func (w *Watch) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, k := range w.kinds {
		all.Go(func() { k.run(ctx) })
	}
	all.Wait()
}

// Settled reports whether all objects that the API server had at first have been received, or refused.
func (w *Watch) Settled() bool {
	return !slices.ContainsFunc(w.kinds, func(k held) bool { return !k.settled() })
}

// Settle waits until Settled; it is an error if ctx ends before.
func (w *Watch) Settle(ctx context.Context) error {
	const often = 20 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	for !w.Settled() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
