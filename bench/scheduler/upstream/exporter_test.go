// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/test/utils/ktesting"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

const (
	leaseSeconds = 40
	renewEvery   = 10 * time.Second
	// lookEvery is how often the exporter looks for nodes that are new.
	lookEvery = 100 * time.Millisecond
	requests  = 32 // at once
)

// installed creates our definitions and our namespace before a plugin is created: a cluster has them
// before its scheduler starts, and informers that look for them too early wait for a minute.
func installed(make frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		if err := install(ctx, h.KubeConfig()); err != nil {
			return nil, err
		}
		return make(ctx, args, h)
	}
}

// install creates our definitions and our namespace, if they are missing.
func install(ctx context.Context, config *rest.Config) error {
	extensions, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	crds, err := manifests.CRDs()
	if err != nil {
		return err
	}
	definitions := extensions.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range crds {
		if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make definition %s: %w", crd.Name, err)
		}
		err := wait.PollUntilContextTimeout(ctx, lookEvery, time.Minute, true, func(ctx context.Context) (bool, error) {
			now, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
			return err == nil && apiextensionshelpers.IsCRDConditionTrue(now, apiextensionsv1.Established), err
		})
		if err != nil {
			return fmt.Errorf("wait until %s is served: %w", crd.Name, err)
		}
	}
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: release.Namespace}}
	if _, err := kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the namespace: %w", err)
	}
	return nil
}

// publishGraphs publishes the graph of each node with GPUs from then on, with Leases that are renewed, until
// the workload ends. It does so for both profiles.
func publishGraphs(tCtx ktesting.TContext) error {
	if err := install(tCtx, tCtx.RESTConfig()); err != nil {
		return err
	}
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(tCtx.Client(), 0)
	e := &fakeExporter{nodes: factory.Core().V1().Nodes().Lister(), machine: m, known: map[types.UID][]*coordinationv1.Lease{}}
	ctx, cancel := context.WithCancel(tCtx)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var done sync.WaitGroup
	done.Go(func() {
		if err := e.run(ctx, tCtx); err != nil && ctx.Err() == nil {
			tCtx.Errorf("exporter: %v", err)
		}
	})
	tCtx.Cleanup(func() {
		cancel()
		done.Wait()
		factory.Shutdown()
	})
	return nil
}

// fakeExporter simulates the exporters and agents of all nodes. It is for one goroutine.
type fakeExporter struct {
	nodes   listersv1.NodeLister
	machine *machine.Machine
	known   map[types.UID][]*coordinationv1.Lease // of nodes that are published
}

func (e *fakeExporter) run(ctx context.Context, tCtx ktesting.TContext) error {
	look, renew := time.NewTicker(lookEvery), time.NewTicker(renewEvery)
	defer look.Stop()
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if err := e.publish(ctx, tCtx); err != nil {
				return err
			}
		case <-renew.C:
			if err := e.renew(ctx, tCtx); err != nil {
				return err
			}
		}
	}
}

// publish publishes the graphs of new nodes.
func (e *fakeExporter) publish(ctx context.Context, tCtx ktesting.TContext) error {
	nodes, err := e.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(requests)
	var mu sync.Mutex // of e.known
	for _, node := range nodes {
		mu.Lock()
		_, known := e.known[node.UID]
		mu.Unlock()
		if known || node.Status.Capacity.Name(v1alpha1.DefaultResource, "").IsZero() {
			continue
		}
		g.Go(func() error {
			leases, err := fleet.Publish(ctx, tCtx.Client(), tCtx.Dynamic(), node, e.machine, leaseSeconds)
			mu.Lock()
			defer mu.Unlock()
			e.known[node.UID] = leases
			return err
		})
	}
	return g.Wait()
}

// renew renews all Leases.
func (e *fakeExporter) renew(ctx context.Context, tCtx ktesting.TContext) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(requests)
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	for _, leases := range e.known {
		for _, lease := range leases {
			g.Go(func() error {
				_, err := tCtx.Client().CoordinationV1().Leases(lease.Namespace).Patch(ctx, lease.Name, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			})
		}
	}
	return g.Wait()
}
