// SPDX-License-Identifier: Apache-2.0

package fairsort

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = config.FairSortName

// Plugin is FairSort. It is the first PreFilter plugin of a profile, so that it sees every pod that leaves
// the queue.
type Plugin struct {
	turns  *Turns
	handle fwk.Handle
}

var (
	_ fwk.QueueSortPlugin = &Plugin{}
	_ fwk.PreFilterPlugin = &Plugin{}
	_ fwk.SignPlugin      = &Plugin{}

	_ fwk.EnqueueExtensions = &Plugin{}
)

// New returns the plugin's factory over the turns of the process.
func New(turns *Turns) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	var once sync.Once
	return func(_ context.Context, _ runtime.Object, h fwk.Handle) (_ fwk.Plugin, err error) {
		once.Do(func() {
			_, err = h.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
				UpdateFunc: turns.podUpdated, DeleteFunc: turns.podDeleted,
			})
		})
		if err != nil {
			return nil, fmt.Errorf("watch the pods: %w", err)
		}
		return &Plugin{turns: turns, handle: h}, nil
	}
}

func (t *Turns) podUpdated(oldObj, newObj any) {
	before, ok := oldObj.(*v1.Pod)
	if pod, isPod := newObj.(*v1.Pod); ok && isPod && before.Spec.NodeName == "" && pod.Spec.NodeName != "" {
		t.bound(pod.UID)
	}
}

func (t *Turns) podDeleted(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if pod, ok := obj.(*v1.Pod); ok {
		t.deleted(pod.UID)
	}
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return Name }

// Less reports whether the first pod is tried before the second: the one of higher priority is, then the
// one with the earlier turn, then the one that has been in the queue for longer.
func (p *Plugin) Less(first, second fwk.QueuedPodInfo) bool {
	longer := first.GetTimestamp().Before(second.GetTimestamp())
	x, y := p.turns.both(first, second, longer)
	if x.line.priority != y.line.priority {
		return x.line.priority > y.line.priority
	}
	return x.at < y.at || x.at == y.at && longer
}

// PreFilter records that the pod is tried, if it left the queue: other plugins run PreFilter for waiting
// pods, too. Only the cycle of a pod that left the queue has a map for pods to activate.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if _, err := state.Read(framework.PodsToActivateKey); err == nil {
		p.turns.tried(pod.UID)
	}
	return nil, fwk.NewStatus(fwk.Skip)
}

// PreFilterExtensions returns none: there is no state.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// SignPod adds nothing to a pod's signature: its turn does not matter to nodes.
func (p *Plugin) SignPod(context.Context, *v1.Pod) ([]fwk.SignFragment, *fwk.Status) { return nil, nil }

// EventsToRegister names no event: the plugin refuses no pod. The framework calls it when the profile is
// complete, so the start fails here if FairSort is not the profile's first PreFilter plugin.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	f, ok := p.handle.(interface{ ListPlugins() *schedconfig.Plugins })
	if !ok {
		return nil, nil
	}
	if first := f.ListPlugins().PreFilter.Enabled; len(first) == 0 || first[0].Name != Name {
		return nil, fmt.Errorf("profile %s: plugins.multiPoint.enabled and plugins.preFilter.enabled must list %s first", p.handle.ProfileName(), Name)
	}
	return nil, nil
}
