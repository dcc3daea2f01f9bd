// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
)

// Process is the state that the plugin's instances of all profiles share. Make one in main.
type Process struct {
	shared *lifecycle.Shared
	gangs  *gangstate.Gangs // nil until the State is made

	mu           sync.Mutex
	config       *gangstate.Config // nil until the first profile has come
	serves       bool              // some profile has GangPlacement
	coscheduling bool              // some profile has Coscheduling
	parts
	planner  *gangstate.Planner
	volumes  volumes
	profiles map[string]*lifecycle.Profile
	budgets  policylisters.PodDisruptionBudgetLister
	doer     *doer // of all profiles
}

// parts are the parts of the State that the plugin uses.
type parts struct {
	nodes        *nodestate.NodeCache
	allocations  *nodestate.AllocationTable
	gangReserver *nodestate.GangReserver
	nominator    *nodestate.Nominator
	preSelector  *nodestate.PreSelector
	fabric       *fabricview.Views
	refusals     *refusals.Table
	lists        *nodestate.FirstLists
}

// NewProcess returns a Process over the process-wide state.
func NewProcess(shared *lifecycle.Shared) *Process {
	return &Process{shared: shared, profiles: map[string]*lifecycle.Profile{}}
}

// errCoscheduling is returned at the start of a scheduler with both plugins.
var errCoscheduling = errors.New("GangPlacement and Coscheduling both hold pods of a PodGroup back: enable one of them, in all profiles")

// Coscheduling returns the factory of that plugin, which refuses to run beside GangPlacement.
func (p *Process) Coscheduling(make frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	return func(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		p.mu.Lock()
		p.coscheduling = true
		both := p.serves
		p.mu.Unlock()
		if both {
			return nil, errCoscheduling
		}
		return make(ctx, obj, h)
	}
}

// configure sets the configuration of all gangs. Profiles that differ are an error.
func (p *Process) configure(c *gangstate.Config) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.config != nil && !equality.Semantic.DeepEqual(c, p.config) {
		return fmt.Errorf("the arguments must be equal in all profiles: have %+v and %+v", *p.config, *c)
	}
	p.config = c
	return nil
}

// scheduler implements gangstate's interfaces to this process.
type scheduler struct {
	*doer
	cluster
}

// cluster implements gangstate.Cluster with the State.
type cluster struct {
	leader      *leader.Leader
	lists       *nodestate.FirstLists
	fabric      *fabricview.Views
	preSelector *nodestate.PreSelector
}

// MayLead implements gangstate.Cluster.
func (c cluster) MayLead() bool { return c.leader.MayLead() }

// Synced implements gangstate.Cluster.
func (c cluster) Synced() bool { return c.lists.Synced() }

// Fabric implements gangstate.Cluster.
func (c cluster) Fabric() *fabricview.View { return c.fabric.Current() }

// Keep implements gangstate.Cluster.
func (c cluster) Keep(places map[string][]*candidates.Kept) { c.preSelector.Keep(places) }

// join adds a profile. The first one starts what the process needs, until ctx ends.
func (p *Process) join(ctx context.Context, h fwk.Handle) error {
	p.mu.Lock()
	p.serves = true
	p.budgets = h.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister()
	both := p.coscheduling
	p.mu.Unlock()
	if both {
		return errCoscheduling
	}
	return p.shared.ServeGangs(h.ProfileName(), func(state *nodestate.State, profile *lifecycle.Profile) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.profiles[h.ProfileName()] = profile
		d := newDoer(ctx, h, p.shared.Clock(), state)
		first := p.gangs == nil
		if first {
			p.gangs = gangstate.New(p.shared.Clock(), *p.config, scheduler{d, cluster{state.Leader, state.Lists, state.Fabric, state.PreSelector}}) // the first one's is for all
		}
		d.gangs = p.gangs
		p.gangs.Serve(h.ProfileName())
		profile.Rank, profile.Yield = p.gangs.Rank, p.gangs.YieldPods
		profile.Placed, profile.Evict = p.gangs.Placed, d.evictMembers
		state.Profiles.ServeGangs(h.ProfileName())
		if !first {
			return nil
		}
		p.parts = parts{
			nodes: state.Nodes, allocations: state.Allocations, gangReserver: state.GangReserver, nominator: state.Nominator,
			preSelector: state.PreSelector, fabric: state.Fabric, refusals: state.Refusals, lists: state.Lists,
		}
		p.planner, p.doer = gangstate.NewPlanner(state.Nodes), d
		go d.runNominations(ctx, p.shared.Clock())
		go d.runSayings(ctx, flowcontrol.NewTokenBucketRateLimiter(saidPerSecond, saidAtOnce))
		go d.runPlacements(flowcontrol.NewTokenBucketRateLimiter(placedPerSecond, placedAtOnce)) //nolint:contextcheck // it has the doer's own
		return p.start(ctx, h, state)
	})
}

// start connects the gangs to the informers. The caller holds p.mu.
func (p *Process) start(ctx context.Context, h fwk.Handle, state *nodestate.State) error {
	registerMetrics()
	core := h.SharedInformerFactory().Core().V1()
	p.volumes = volumes{claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister()}
	if _, err := core.Pods().Informer().AddEventHandler(p.podHandler()); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := core.Nodes().Informer().AddEventHandler(p.nodeHandler()); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	if err := followEnded(ctx, h.ClientSet(), p.gangs); err != nil {
		return err
	}
	state.Changes.OnRoom(p.gangs.Changed)
	state.Fabric.OnChange(p.gangs.Changed)
	state.Diagnosis.DiagnoseGangs(p.gangs.Diagnose)
	p.gangs.RegisterMetrics()
	go p.gangs.Run(ctx, p.shared.Clock())
	go p.gangs.RunRounds(ctx, p.shared.Clock())
	go p.watchGroups(ctx, h)
	return nil
}

func (p *Process) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*v1.Pod); ok {
				p.gangs.ChangePod(nil, pod)
			}
		},
		UpdateFunc: func(oldObj, obj any) {
			old, ok1 := oldObj.(*v1.Pod)
			pod, ok2 := obj.(*v1.Pod)
			if ok1 && ok2 && old.UID != pod.UID { // replaced under its name while the watch was broken
				p.gangs.DeletePod(old)
			}
			if ok2 {
				p.gangs.ChangePod(old, pod)
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				p.gangs.DeletePod(pod)
			}
		},
	}
}

// nodeHandler wakes waiting gangs when a node changes in a way that may let other pods onto it. Changes of
// its devices come from the State.
func (p *Process) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { p.gangs.Changed() },
		UpdateFunc: func(oldObj, obj any) {
			old, ok1 := oldObj.(*v1.Node)
			node, ok2 := obj.(*v1.Node)
			if ok1 && ok2 && nodeChanged(old, node) {
				p.gangs.Changed()
			}
		},
	}
}

// Groups returns the known PodGroups. They must not be changed.
func (p *Process) Groups() []*schedulingv1alpha1.PodGroup {
	p.mu.Lock()
	gangs := p.gangs
	p.mu.Unlock()
	if gangs == nil {
		return nil
	}
	return gangs.Groups()
}

// demand reads a pod with the arguments of its profile.
func (p *Process) demand(pod *v1.Pod) (*placement.Demand, error) {
	p.mu.Lock()
	profile := p.profiles[pod.Spec.SchedulerName]
	p.mu.Unlock()
	if profile == nil {
		return nil, fmt.Errorf("profile %q has no %s", pod.Spec.SchedulerName, Name)
	}
	return profile.Demand(pod)
}

// groupsRetry is the interval at which the API server is checked for PodGroups while it has none, or while
// they cannot be watched.
const groupsRetry = 10 * time.Second

// watchGroups follows the PodGroups once the API server serves them.
func (p *Process) watchGroups(ctx context.Context, h fwk.Handle) {
	logger := klog.FromContext(ctx)
	for said := false; ; said = true {
		served, err := groupsServed(h.ClientSet().Discovery())
		if served {
			if err = p.followGroups(ctx, h.KubeConfig()); err == nil {
				return
			}
			logger.Error(err, "PodGroups cannot be watched; it is tried again")
		} else if !said {
			logger.Info("The API server does not know PodGroup; gangs are those of Kueue and of annotations", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.shared.Clock().After(groupsRetry):
		}
	}
}
