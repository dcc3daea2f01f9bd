// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nodestate"
	"github.com/nvtopo/nvtopo/pkg/plugins/fairsort"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
)

// rig is one real scheduler over a cluster, whose cycles the benchmark drives
// itself. What an API server would tell it comes from a fake one.
type rig struct {
	*scheduler.Scheduler
	framework framework.Framework
	api       *fake.Clientset
	state     *nodestate.State   // nil where no plugin of ours runs
	bound     *watch.FakeWatcher // tells the pod informer of bindings
	version   int                // last resource version told
	logger    klog.Logger
	stop      context.CancelFunc
}

// newRig starts a scheduler and feeds it the cluster, and builds the answer
// tables if it is told to: the scheduler does so in the background. Stop it after use.
func newRig(ctx context.Context, config *schedconfig.KubeSchedulerConfiguration, c *cluster, build bool) (*rig, error) {
	// The scheduler's own lines would be measured with it.
	logger := klog.New(nil)
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	r := &rig{bound: watch.NewFake(), logger: logger, stop: cancel}
	if err := r.start(ctx, config, c, build); err != nil {
		cancel()
		return nil, err
	}
	return r, nil
}

func (r *rig) start(ctx context.Context, config *schedconfig.KubeSchedulerConfiguration, c *cluster, build bool) error {
	client := r.client(c)
	r.api = client
	factory := scheduler.NewInformerFactory(client, 0)
	recorder := func(string) events.EventRecorder { return &events.FakeRecorder{} }
	var err error
	if r.Scheduler, err = scheduler.New(ctx, client, factory, nil, recorder, scheduler.WithProfiles(config.Profiles...),
		scheduler.WithPercentageOfNodesToScore(config.PercentageOfNodesToScore), scheduler.WithParallelism(config.Parallelism),
		scheduler.WithFrameworkOutOfTreeRegistry(r.registry())); err != nil {
		return fmt.Errorf("start the scheduler: %w", err)
	}
	r.framework = r.Profiles[config.Profiles[0].SchedulerName]
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for _, n := range c.nodes {
		r.Cache.AddNode(r.logger, n)
	}
	if r.state == nil {
		return nil
	}
	for _, t := range c.topologies {
		if _, err := r.state.Apply(t); err != nil {
			return fmt.Errorf("feed the graph store: %w", err)
		}
	}
	if build {
		if err := r.state.Registry().PrepareAll(ctx); err != nil {
			return fmt.Errorf("build the answer tables: %w", err)
		}
	}
	return r.await(ctx, "the Leases", r.state.Synced)
}

// client serves the Leases and the watch of pods; everything else is empty. The
// fake client's own tracker would take minutes for a large cluster.
func (r *rig) client(c *cluster) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("list", "leases", func(k8stesting.Action) (bool, runtime.Object, error) { return true, c.leases, nil })
	client.PrependWatchReactor("leases", k8stesting.DefaultWatchReactor(watch.NewFake(), nil))
	if c.served {
		nodes := &v1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for _, n := range c.nodes {
			nodes.Items = append(nodes.Items, *n)
		}
		client.PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nodes, nil })
		client.PrependWatchReactor("nodes", k8stesting.DefaultWatchReactor(watch.NewFake(), nil))
	}
	client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
	})
	client.PrependWatchReactor("pods", func(action k8stesting.Action) (bool, watch.Interface, error) {
		w, ok := action.(k8stesting.WatchAction)
		if ok && !w.GetWatchRestrictions().Fields.Matches(fields.Set{"status.phase": string(v1.PodRunning)}) {
			return true, watch.NewFake(), nil // who asks for finished pods must not take what is told of others
		}
		return true, r.bound, nil
	})
	return client
}

// registry is our plugins as cmd/scheduler registers them; it also keeps the
// State they share.
func (r *rig) registry() frameworkruntime.Registry {
	shared := lifecycle.NewShared(clock.RealClock{})
	keep := func(f frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
		return func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := f(ctx, args, h)
			if s, ok := p.(interface{ State() *nodestate.State }); ok {
				r.state = s.State()
			}
			return p, err
		}
	}
	return frameworkruntime.Registry{
		topology.Name: keep(topology.New(shared)), numa.Name: keep(numa.New(shared)), gang.Name: gang.New(gang.NewProcess(shared)),
		fairsort.Name: fairsort.New(fairsort.NewTurns(clock.RealClock{})),
	}
}

// patience bounds the wait for what informers do in milliseconds.
const patience = 30 * time.Second

func (r *rig) await(ctx context.Context, what string, done func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Microsecond, patience, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// placement is a pod the scheduler has assumed on a node.
type placement struct {
	pod   *v1.Pod
	alloc *allocation.Allocation // nil where none of our plugins chose
}

// confirm tells the scheduler what it would hear once the pods were bound with
// their annotations, and returns when its cache has heard.
func (r *rig) confirm(ctx context.Context, placed []placement) error {
	for _, p := range placed {
		bound := p.pod.DeepCopy()
		r.version++
		bound.ResourceVersion = strconv.Itoa(1 + r.version)
		if p.alloc != nil {
			annotations, err := r.state.Annotations(p.alloc, true)
			if err != nil {
				return fmt.Errorf("annotations of pod %s: %w", p.pod.Name, err)
			}
			bound.Annotations = annotations
			r.state.Attempt(p.pod.UID, p.pod.Spec.NodeName).BindingBegan()
			r.state.Attempt(p.pod.UID, p.pod.Spec.NodeName).Written()
		}
		if err := r.Cache.FinishBinding(r.logger, p.pod); err != nil {
			return fmt.Errorf("finish the binding of pod %s: %w", p.pod.Name, err)
		}
		r.bound.Add(bound)
	}
	var failure error
	err := r.await(ctx, "the informers to see the bindings", func() bool {
		for _, p := range placed {
			assumed, err := r.Cache.IsAssumedPod(p.pod)
			if failure = errors.Join(failure, err); assumed {
				return false
			}
		}
		return true
	})
	return errors.Join(failure, err)
}
