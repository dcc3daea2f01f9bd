// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/plugins/fairsort"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// simulated is the objects of a simulated cluster. Schedulers only read them, so all repeats
// share them.
type simulated struct {
	nodes      []*v1.Node
	topologies []*v1alpha1.NodeGPUTopology
	leases     *coordinationv1.LeaseList
	gpus       int
	served     bool // the API server has the nodes, too: labels are read from it
}

// simulate creates count nodes that are the given machines in turn, in racks unless rack is
// nil.
func simulate(count int, rack func(i int) int, machines ...*machine.Machine) (*simulated, error) {
	var of fleet.Options
	if rack != nil {
		of.Labels = func(i int) map[string]string { return map[string]string{rackLabel: "rack-" + strconv.Itoa(rack(i))} }
	}
	c := &simulated{leases: &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, served: rack != nil}
	for i := range count {
		o, err := fleet.Make(i, machines[i%len(machines)], &of)
		if err != nil {
			return nil, err // its errors name their cause
		}
		o.Node.UID, o.Topology.UID = types.UID(o.Node.Name+"-uid"), types.UID(o.Node.Name+"-topology")
		o.Topology.ResourceVersion, o.Topology.Spec.NodeUID = "1", o.Node.UID
		for _, l := range o.Leases {
			l.UID, l.ResourceVersion = types.UID(l.Name), "1"
			c.leases.Items = append(c.leases.Items, *l)
		}
		c.nodes, c.topologies = append(c.nodes, o.Node), append(c.topologies, o.Topology)
		c.gpus += len(o.Topology.Spec.GPUs)
	}
	return c, nil
}

// switched20 is a machine that no catalogue lists, larger than the limit of tables: twenty
// PCIe GPUs, four behind each of five switches, three switches on one socket and two on the
// other.
func switched20() *machine.Machine {
	const all = 20
	m := &machine.Machine{
		Name: "switched-20", Description: "20x PCIe GPU behind five switches", Model: "NVIDIA L40S", GPUMemoryMiB: 46068, PCIeGen: 4,
		NUMANodes: []machine.NUMANode{
			{ID: 0, CPUs: "0-47,96-143", MemoryGiB: 512, Distances: []int{10, 21}},
			{ID: 1, CPUs: "48-95,144-191", MemoryGiB: 512, Distances: []int{21, 10}},
		},
		ThreadsPerCore: 2, ThreadStride: 96,
	}
	for i := range all {
		row := make([]string, all)
		for j := range row {
			switch {
			case i == j:
				row[j] = "X"
			case i/4 == j/4:
				row[j] = "PIX"
			case i/12 == j/12:
				row[j] = "NODE"
			default:
				row[j] = "SYS"
			}
		}
		m.GPUs = append(m.GPUs, machine.GPU{PCIBusID: fmt.Sprintf("0000:%02x:00.0", 0x10+i), NUMANode: i / 12})
		m.Links = append(m.Links, strings.Join(row, " "))
	}
	return m
}

// rig is one real scheduler over a cluster, whose cycles the benchmark drives itself. A fake
// client takes the place of the API server.
type rig struct {
	*scheduler.Scheduler
	framework framework.Framework
	api       *fake.Clientset
	state     *nodestate.State   // nil where none of our plugins runs
	bound     *watch.FakeWatcher // reports bindings to the pod informer
	version   int                // last resource version reported
	logger    klog.Logger
	stop      context.CancelFunc
}

// newRig starts a scheduler with the cluster. build makes it build the answer tables first,
// which otherwise happens in the background. Stop it after use.
func newRig(ctx context.Context, config *schedconfig.KubeSchedulerConfiguration, c *simulated, build bool) (*rig, error) {
	// The scheduler's own log lines would be measured, too.
	logger := klog.New(nil)
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	r := &rig{bound: watch.NewFake(), logger: logger, stop: cancel}
	if err := r.start(ctx, config, c, build); err != nil {
		cancel()
		return nil, err
	}
	return r, nil
}

func (r *rig) start(ctx context.Context, config *schedconfig.KubeSchedulerConfiguration, c *simulated, build bool) error {
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
		if _, err := r.state.Graphs.Apply(t); err != nil {
			return fmt.Errorf("feed the graph store: %w", err)
		}
	}
	if build {
		if err := r.state.Registry.PrepareAll(ctx); err != nil {
			return fmt.Errorf("build the answer tables: %w", err)
		}
	}
	return r.await(ctx, "Leases and racks", func() bool {
		f := r.state.Fabric.Current()
		return r.state.Lists.Synced() && (!c.served || f.HasLevels() && f.Tree.Len() == len(c.nodes))
	})
}

// client serves the Leases and the watch of pods; everything else is empty. The fake client's
// own tracker would take minutes for a large cluster.
func (r *rig) client(c *simulated) *fake.Clientset {
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
			return true, watch.NewFake(), nil // a watch of finished pods must not consume the events of others
		}
		return true, r.bound, nil
	})
	return client
}

// registry returns our plugins as cmd/scheduler registers them; it also keeps the State they
// share.
func (r *rig) registry() frameworkruntime.Registry {
	shared := lifecycle.NewShared(clock.RealClock{}, func(_ context.Context, _ fwk.Handle, _ string, state *nodestate.State) cache.ResourceEventHandler {
		r.state = state
		return cache.ResourceEventHandlerFuncs{}
	})
	return frameworkruntime.Registry{
		topology.Name: topology.New(shared), numa.Name: numa.New(shared), gang.Name: gang.New(gang.NewProcess(shared)),
		fairsort.Name: fairsort.New(fairsort.NewTurns(clock.RealClock{})),
	}
}

// patience bounds the wait for informers, which take milliseconds.
const patience = 30 * time.Second

func (r *rig) await(ctx context.Context, what string, done func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Microsecond, patience, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// placement is a pod that the scheduler has assumed on a node.
type placement struct {
	pod   *v1.Pod
	alloc *allocation.Allocation // nil where none of our plugins chose
}

// nextVersion returns the resource version of the next watch event.
func (r *rig) nextVersion() string {
	r.version++
	return strconv.Itoa(1 + r.version)
}

// confirm reports to the scheduler that the pods are bound with their annotations, and returns
// when its cache shows it.
func (r *rig) confirm(ctx context.Context, placed []placement) error {
	for _, p := range placed {
		bound := p.pod.DeepCopy()
		bound.ResourceVersion = r.nextVersion()
		if p.alloc != nil {
			annotations, err := r.state.Nodes.Annotations(p.alloc, true)
			if err != nil {
				return fmt.Errorf("annotations of pod %s: %w", p.pod.Name, err)
			}
			bound.Annotations = annotations
			r.state.Binder.Attempt(p.pod.UID, p.pod.Spec.NodeName).BindingBegan()
			r.state.Binder.Attempt(p.pod.UID, p.pod.Spec.NodeName).Written()
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

// snapshot returns the snapshot of the cache that the scheduler's plugins see.
func (r *rig) snapshot() (*internalcache.Snapshot, error) {
	s, ok := r.framework.SnapshotSharedLister().(*internalcache.Snapshot)
	if !ok {
		return nil, fmt.Errorf("the snapshot is %T", r.framework.SnapshotSharedLister())
	}
	return s, nil
}

// assume assumes a pod on its node and runs Reserve, and returns how long Reserve took.
func (r *rig) assume(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (time.Duration, error) {
	if err := r.Cache.AssumePod(r.logger, pod); err != nil {
		return 0, fmt.Errorf("assume pod %s: %w", pod.Name, err)
	}
	r.SchedulingQueue.DeleteNominatedPodIfExists(pod)
	start := time.Now()
	if s := r.framework.RunReservePluginsReserve(ctx, state, pod, pod.Spec.NodeName); !s.IsSuccess() {
		return 0, fmt.Errorf("reserve for pod %s: %w", pod.Name, s.AsError())
	}
	return time.Since(start), nil
}
