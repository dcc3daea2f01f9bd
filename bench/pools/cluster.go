// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// The compared configurations.
const (
	profileStock = "stock"           // Kueue and kube-scheduler
	profileOurs  = "ours"            // Kueue and our scheduler
	profilePools = "ours with pools" // the same, the pool controller beside it, and its placement check
)

var profiles = []string{profileStock, profileOurs, profilePools}

// schedulerOf returns the schedulerName of a profile's pods.
func schedulerOf(profile string) string {
	if profile == profileStock {
		return v1.DefaultSchedulerName
	}
	return release.Profile
}

const (
	pool = "bench"
	// qps is beyond the capacity of two cores, for both schedulers.
	qps = 5000
	// ready bounds the wait for queues, and for the removal of jobs.
	ready = 5 * time.Minute
)

var (
	clusterQueues = kueue.SchemeGroupVersion.WithResource("clusterqueues")
	localQueues   = kueue.SchemeGroupVersion.WithResource("localqueues")
	workloads     = kueue.SchemeGroupVersion.WithResource("workloads")
)

// cluster is a control plane with Kueue, both schedulers, and a pool of all nodes.
type cluster struct {
	*devcluster.Cluster
	kube       kubernetes.Interface
	dyn        dynamic.Interface
	schedulers map[string]*devcluster.Scheduler // by name
	// plain runs without the placement check, checked with it.
	plain, checked *devcluster.PoolController
}

func newCluster(ctx context.Context, o *options, log io.Writer) (_ *cluster, err error) {
	kueueAt := filepath.Join(o.bin, "kueue")
	dev, err := devcluster.Start(ctx, devcluster.Config{
		Controllers: true, KwokBinary: filepath.Join(o.bin, "kwok"), Log: log,
		Kueue: &devcluster.KueueOptions{Binary: kueueAt, Config: kueueAt + "-config"},
	})
	if err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	c := &cluster{Cluster: dev, schedulers: map[string]*devcluster.Scheduler{}}
	defer func() { //nolint:contextcheck // what was started has to end although ctx may be over
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := errors.Join(c.InstallManifests(ctx), c.ApplyManifests(ctx, manifests.Pools)); err != nil {
		return nil, fmt.Errorf("install the manifests: %w", err)
	}
	if c.kube, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if c.dyn, err = dynamic.NewForConfig(c.RESTConfig()); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	labels := func(int) map[string]string { return map[string]string{poolv1alpha1.LabelPool: pool} }
	if err := fleet.Add(ctx, c.kube, c.dyn, o.Nodes, fleet.Options{Labels: labels}); err != nil {
		return nil, err
	}
	return c, errors.Join(c.startSchedulers(ctx, o), c.makePool(ctx, o))
}

func (c *cluster) startSchedulers(ctx context.Context, o *options) error {
	for _, name := range []string{schedulerOf(profileStock), schedulerOf(profileOurs)} {
		config, err := configure(name)
		if err != nil {
			return err
		}
		c.schedulers[name], err = c.StartScheduler(ctx, devcluster.SchedulerOptions{
			Binary: filepath.Join(o.bin, "nvtopo-scheduler"), Config: config, ServiceAccount: release.Namespace + "/nvtopo-scheduler",
		})
		if err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
	}
	return nil
}

// configure returns the shipped configuration, or kube-scheduler's own profile with the same
// client.
func configure(schedulerName string) ([]byte, error) {
	text, err := manifests.FS.ReadFile(manifests.SchedulerConfigBindingPath)
	if err != nil {
		return nil, fmt.Errorf("read the shipped configuration: %w", err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("decode the shipped configuration: %w", err)
	}
	fields["clientConnection"] = map[string]any{"qps": int64(qps), "burst": int64(2 * qps)}
	if schedulerName == v1.DefaultSchedulerName {
		fields["leaderElection"] = map[string]any{"leaderElect": false}
		fields["profiles"] = []any{map[string]any{"schedulerName": schedulerName}}
	}
	out, err := yaml.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	return out, nil
}

// tenant returns the name of a tenant and of its namespace.
func tenant(i int) string { return fmt.Sprintf("tenant-%d", i) }

// makePool creates a pool of all nodes, in which the tenants have equal shares, and waits until
// Kueue has its queues.
func (c *cluster) makePool(ctx context.Context, o *options) (err error) {
	var quotas []any
	total := int64(o.Nodes * fleet.GPUs)
	for i := range o.Tenants {
		quotas = append(quotas, map[string]any{"tenant": tenant(i), "guaranteed": total / int64(o.Tenants)})
		namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant(i), Labels: map[string]string{poolv1alpha1.LabelTenant: tenant(i)}}}
		if _, err := c.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make namespace %s: %w", tenant(i), err)
		}
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": poolv1alpha1.SchemeGroupVersion.String(), "kind": poolv1alpha1.ComputePoolKind, "metadata": map[string]any{"name": pool},
		"spec": map[string]any{"poolType": "gpu", "capacity": map[string]any{"total": total}, "quotas": quotas},
	}}
	if _, err := c.dyn.Resource(poolv1alpha1.ComputePoolGVR).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the pool: %w", err)
	}
	if c.plain, err = c.stoppedController(ctx, o, "--placement-check=false"); err != nil {
		return err
	}
	c.checked, err = c.stoppedController(ctx, o, "--placement-check")
	return err
}

// stoppedController returns a controller that Restart starts.
func (c *cluster) stoppedController(ctx context.Context, o *options, arg string) (*devcluster.PoolController, error) {
	p, err := c.StartPoolController(ctx, devcluster.PoolControllerOptions{Binary: filepath.Join(o.bin, "nvtopo-pool-controller"), Args: []string{arg}})
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		return nil, fmt.Errorf("start the pool controller: %w", err)
	}
	return p, nil
}

// queuesFor sets up the queues of a profile. The pool controller keeps running only where it is
// measured, too.
func (c *cluster) queuesFor(ctx context.Context, o *options, profile string) error {
	if err := errors.Join(c.plain.Kill(), c.checked.Kill()); err != nil {
		return fmt.Errorf("stop the pool controller: %w", err)
	}
	controller := c.plain
	if profile == profilePools {
		controller = c.checked
	}
	if err := controller.Restart(ctx); err != nil {
		return err // its errors name their cause
	}
	for i := range o.Tenants {
		name := names.ClusterQueue(pool, tenant(i), "")
		err := wait.PollUntilContextTimeout(ctx, time.Second, ready, true, func(ctx context.Context) (bool, error) {
			queue, err := c.dyn.Resource(clusterQueues).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, ignoreNotFound(err)
			}
			if _, err := c.dyn.Resource(localQueues).Namespace(tenant(i)).Get(ctx, names.LocalQueue(pool, ""), metav1.GetOptions{}); err != nil {
				return false, ignoreNotFound(err)
			}
			_, checked, err := unstructured.NestedMap(queue.Object, "spec", "admissionChecksStrategy")
			return err == nil && checked == (profile == profilePools) && isTrue(queue, "Active"), err
		})
		if err != nil {
			return fmt.Errorf("wait for ClusterQueue %s: %w", name, err)
		}
	}
	if profile != profilePools {
		return controller.Kill()
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// isTrue reports whether an object has a condition that is true.
func isTrue(o *unstructured.Unstructured, kind string) bool {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, entry := range all {
		if c, ok := entry.(map[string]any); ok && c["type"] == kind {
			return c["status"] == string(metav1.ConditionTrue)
		}
	}
	return false
}
