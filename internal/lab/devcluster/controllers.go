// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
)

const (
	workers       = 5                // per controller; kube-controller-manager's default
	gcSyncTimeout = 30 * time.Second // longest wait for the first sync of all resources
	gcRediscover  = 5 * time.Second  // how soon a new CRD's objects are collected too
	// Between attempts to replace a daemon's failed pod; kube-controller-manager's values.
	daemonBackoff, daemonMaxBackoff = time.Second, 15 * time.Minute
)

// controllers are the parts of kube-controller-manager that the cluster runs: those
// that make, replace and remove pods.
type controllers struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// startControllers starts the controllers as the admin and returns when their informers run.
func startControllers(ctx context.Context, base *rest.Config) (*controllers, error) {
	cfg := rest.CopyConfig(base)
	cfg.UserAgent = "kube-controller-manager"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the controllers' client: %w", err)
	}
	metadataClient, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the controllers' metadata client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	scales, err := scale.NewForConfig(cfg, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, fmt.Errorf("make the controllers' scale client: %w", err)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &controllers{cancel: cancel}
	fail := func(name string, err error) (*controllers, error) {
		cancel()
		return nil, fmt.Errorf("make the %s controller: %w", name, err)
	}
	typed := informers.NewSharedInformerFactory(client, 0)
	meta := metadatainformer.NewSharedInformerFactory(metadataClient, 0)
	started := make(chan struct{})
	core, apps := typed.Core().V1(), typed.Apps().V1()
	// kube-controller-manager gives the shared informer this index; the taint-eviction controller looks pods up by it.
	if err := controller.AddPodNodeNameIndexer(core.Pods().Informer()); err != nil {
		return fail("taint-eviction", err)
	}

	jobs, err := job.NewController(ctx, core.Pods(), typed.Batch().V1().Jobs(), client)
	if err != nil {
		return fail("job", err)
	}
	taints, err := tainteviction.New(ctx, client, core.Pods(), core.Nodes(), "taint-eviction-controller")
	if err != nil {
		return fail("taint-eviction", err)
	}
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, metadataClient, mapper,
		garbagecollector.DefaultIgnoredResources(), informerfactory.NewInformerFactory(typed, meta), started)
	if err != nil {
		return fail("garbage-collector", err)
	}
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), client)
	if err != nil {
		return fail("deployment", err)
	}
	daemons, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(), client,
		flowcontrol.NewBackOff(daemonBackoff, daemonMaxBackoff))
	if err != nil {
		return fail("daemonset", err)
	}
	stateful := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), client)
	replicas := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), client, replicaset.BurstReplicas)
	disruptions := disruption.NewDisruptionController(ctx, core.Pods(), typed.Policy().V1().PodDisruptionBudgets(),
		core.ReplicationControllers(), apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, mapper, scales, client.Discovery())
	namespaces := namespace.NewNamespaceController(ctx, client, metadataClient, client.Discovery().ServerPreferredNamespacedResources,
		core.Namespaces(), 5*time.Minute, v1.FinalizerKubernetes)
	sweeper := &podSweeper{client: client, pods: core.Pods().Lister()}

	for _, run := range []func(){
		func() { jobs.Run(ctx, workers) },
		func() { taints.Run(ctx) },
		func() { collector.Run(ctx, workers, gcSyncTimeout) },
		func() { collector.Sync(ctx, client.Discovery(), gcRediscover) },
		func() { replicas.Run(ctx, workers) },
		func() { deployments.Run(ctx, workers) },
		func() { stateful.Run(ctx, workers) },
		func() { daemons.Run(ctx, workers) },
		func() { disruptions.Run(ctx) },
		func() { namespaces.Run(ctx, workers) },
		func() { sweeper.run(ctx) },
	} {
		c.wg.Go(run)
	}
	typed.Start(ctx.Done())
	meta.Start(ctx.Done())
	close(started)
	c.wg.Go(func() {
		<-ctx.Done()
		typed.Shutdown()
		meta.Shutdown()
	})
	return c, nil
}

func (c *controllers) stop() {
	c.cancel()
	c.wg.Wait()
}
