// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// EventsToRegister lists the events that can make a waiting pod fit, except changes of graphs: after
// those the State itself wakes pods. When the framework calls this method the profile is complete, so a
// profile that leaves the plugin out of an extension point, or has an impossible order of binders, stops
// the start here.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	if err := p.checkPoints(); err != nil {
		return nil, err
	}
	if err := p.checkBindOrder(); err != nil {
		return nil, err
	}
	node := fwk.Add | fwk.UpdateNodeTaint | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.Update}, QueueingHintFn: p.afterPod},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: node}, QueueingHintFn: p.afterNode},
	}, nil
}

// checkBindOrder refuses a profile in which DefaultBinder would bind before the allocation is on the
// Binding.
func (p *Plugin) checkBindOrder() error {
	enabled := p.enabled()
	if !p.Profile.WriteInBind || enabled == nil {
		return nil
	}
	at := func(name string) int { return position(enabled.Bind, name) }
	for _, own := range p.Profile.plugins {
		if i := at(own); i >= 0 && (at(names.DefaultBinder) < 0 || i < at(names.DefaultBinder)) {
			return nil
		}
	}
	return fmt.Errorf("profile %s: with annotationWrite: Binding, plugins.bind.enabled must list one of %v before %s",
		p.handle.ProfileName(), slices.Sorted(slices.Values(p.Profile.plugins)), names.DefaultBinder)
}

// bindsFirst reports whether no Binding is sent before Bind of this plugin is called: the plugin is the
// first binder, and no extender binds, which would come before all plugins.
func (p *Plugin) bindsFirst() bool {
	enabled := p.enabled()
	if enabled == nil || len(enabled.Bind.Enabled) == 0 || !slices.Contains(p.Profile.plugins, enabled.Bind.Enabled[0].Name) {
		return false
	}
	return !slices.ContainsFunc(p.handle.Extenders(), func(e fwk.Extender) bool { return e.IsBinder() })
}

// enabled returns the profile's plugins by extension point, in their order; nil if the framework does not
// provide them.
func (p *Plugin) enabled() *config.Plugins {
	if f, ok := p.handle.(interface{ ListPlugins() *config.Plugins }); ok {
		return f.ListPlugins()
	}
	return nil
}

func position(set config.PluginSet, name string) int {
	return slices.IndexFunc(set.Enabled, func(b config.Plugin) bool { return b.Name == name })
}

// CheckPostFilterOrder refuses a profile in which the default preemption would run
// before the plugin's PostFilter. It could evict pods because of a list of nodes that
// the plugin would have taken back, or choose other victims than the plugin. A profile
// may leave the plugin out of PostFilter if it makes no lists.
func (p *Plugin) CheckPostFilterOrder(lists bool) error {
	enabled := p.enabled()
	if enabled == nil {
		return nil
	}
	own, preemption := position(enabled.PostFilter, p.name), position(enabled.PostFilter, names.DefaultPreemption)
	if own < 0 && !lists {
		return nil
	}
	if own < 0 || preemption >= 0 && preemption < own {
		return fmt.Errorf("profile %s: plugins.postFilter.enabled must list %s before %s", p.handle.ProfileName(), p.name, names.DefaultPreemption)
	}
	if position(enabled.PreEnqueue, p.name) < 0 {
		return fmt.Errorf("profile %s: plugins.preEnqueue must not leave out %s, which keeps pods waiting there while their victims are evicted",
			p.handle.ProfileName(), p.name)
	}
	return nil
}

// CheckScoreWeight refuses a profile whose other scorers could outvote the best nodes of the plugin. A
// profile may leave the plugin out of Score.
func (p *Plugin) CheckScoreWeight() error {
	enabled := p.enabled()
	if enabled == nil {
		return nil
	}
	own := position(enabled.Score, p.name)
	if own < 0 {
		return nil
	}
	others := -int64(enabled.Score.Enabled[own].Weight)
	for _, scorer := range enabled.Score.Enabled {
		others += int64(scorer.Weight)
	}
	if err := nodeindex.CheckWeight(int64(enabled.Score.Enabled[own].Weight), others); err != nil {
		return fmt.Errorf("profile %s: %w; nvtopo generate scheduler-profile writes weights that do", p.handle.ProfileName(), err)
	}
	return nil
}

// PreemptionEnabled reports whether the profile allows eviction by priority. It does
// not if it replaced DefaultPreemption by another plugin, or removed it.
func (p *Plugin) PreemptionEnabled() bool {
	enabled := p.enabled()
	return enabled == nil || position(enabled.PostFilter, names.DefaultPreemption) >= 0
}

// afterPod wakes a waiting pod when another pod gave back something that it could use,
// and when the waiting pod itself was corrected.
func (p *Plugin) afterPod(logger klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	old, changed, err := schedutil.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if changed == nil { // deleted, or no longer nominated: a nominated pod used capacity
		if old.Spec.NodeName == "" && old.Status.NominatedNodeName == "" || !p.Profile.heldAnything(old) {
			return fwk.QueueSkip, nil
		}
		logger.V(5).Info("A pod that held devices or CPUs went away", "pod", klog.KObj(pod), "deleted", klog.KObj(old))
		return fwk.Queue, nil
	}
	switch {
	case old == nil:
		return fwk.Queue, nil
	case changed.UID == pod.UID:
		// Most updates are the scheduler's own report that the pod waits.
		if p.Profile.asks(old) == p.Profile.asks(changed) {
			return fwk.QueueSkip, nil
		}
		return fwk.Queue, nil
	case old.Annotations[allocation.Key] != changed.Annotations[allocation.Key], scaledDown(old, changed):
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// asks returns equal texts for two versions of a pod that have the same result on every node.
func (p *Profile) asks(pod *v1.Pod) string {
	d, err := p.Demand(pod)
	if err != nil {
		return err.Error()
	}
	return d.Signature()
}

// scaledDown reports whether a pod was resized in place to less CPU or memory.
func scaledDown(old, changed *v1.Pod) bool {
	before := resourcehelper.PodRequests(old, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	after := resourcehelper.PodRequests(changed, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	return after.Cpu().Cmp(*before.Cpu()) < 0 || after.Memory().Cmp(*before.Memory()) < 0
}

// heldAnything reports whether a pod had devices, CPU or memory: the latter use the NUMA nodes they may
// be on.
func (p *Profile) heldAnything(pod *v1.Pod) bool {
	d, err := p.Demand(pod)
	return err != nil || d.HasGPUs() || d.MilliCPU > 0 || d.Memory > 0
}

// afterNode wakes a waiting pod when a node came, or its devices or labels changed.
func (p *Plugin) afterNode(logger klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	old, changed, err := schedutil.As[*v1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if old != nil && changed != nil {
		d, err := p.Profile.Demand(pod)
		if err != nil {
			return fwk.Queue, fmt.Errorf("reading pod %s: %w", klog.KObj(pod), err)
		}
		for _, r := range d.Resources {
			if changed.Status.Allocatable.Name(v1.ResourceName(r.Name), "").Value() <
				old.Status.Allocatable.Name(v1.ResourceName(r.Name), "").Value() {
				return fwk.QueueSkip, nil
			}
		}
	}
	logger.V(5).Info("A node changed", "pod", klog.KObj(pod), "node", klog.KObj(changed))
	return fwk.Queue, nil
}
