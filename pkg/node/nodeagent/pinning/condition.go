// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet/kubeletconf"
)

// Reasons of the condition Pinned.
const (
	ReasonPinning            = "Pinning"
	ReasonOff                = "Off"
	ReasonRuntimeUnavailable = "RuntimeUnavailable"
	ReasonKubeletUnknown     = "KubeletUnknown"
	ReasonTopologyUnknown    = "TopologyUnknown"
	ReasonCPUManagerStatic   = "CPUManagerStatic"
)

// conditionPoll is the period of comparing the condition with kubelet's configuration.
const conditionPoll = 10 * time.Second

// link is the state of the connection to the runtime.
type link struct {
	up  bool
	err error // cause of the disconnection, nil before the first attempt
}

// Off returns the condition of an agent that does not pin.
func Off() metav1.Condition {
	return condition(metav1.ConditionFalse, ReasonOff, "the agent does not confine containers (--nri=pin does)")
}

// Condition returns the Pinned condition: whether GPU containers are confined now, and if not, the
// reason.
func (p *Plugin) Condition() metav1.Condition {
	p.mu.Lock()
	l := p.link
	p.mu.Unlock()
	if p.cfg.Mode != Pin {
		return Off()
	}
	if !l.up {
		why := "not yet connected"
		if l.err != nil {
			why = l.err.Error()
		}
		return condition(metav1.ConditionFalse, ReasonRuntimeUnavailable, "no connection with the container runtime's NRI: "+why)
	}
	k := p.cfg.Kubelet()
	switch {
	case k == nil:
		return condition(metav1.ConditionFalse, ReasonKubeletUnknown, "how kubelet manages CPUs is not known; containers are left alone")
	case k.CPUManagerPolicy != kubeletconf.CPUPolicyNone:
		return condition(metav1.ConditionFalse, ReasonCPUManagerStatic,
			fmt.Sprintf("kubelet's CPU manager runs policy %q and sets the cpusets itself; containers are left alone", k.CPUManagerPolicy))
	case p.cfg.Topology() == nil:
		return condition(metav1.ConditionFalse, ReasonTopologyUnknown, "the node's graph is not known; containers are left alone")
	case k.MemoryManagerPolicy != kubeletconf.MemoryPolicyNone:
		return condition(metav1.ConditionTrue, ReasonPinning, "GPU containers are confined to CPUs; their memory is kubelet's memory manager's")
	}
	return condition(metav1.ConditionTrue, ReasonPinning, "GPU containers are confined to the CPUs and memory of their GPUs' NUMA nodes")
}

func condition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionPinned, Status: status, Reason: reason, Message: message}
}

// connected records that the runtime has sent its containers.
func (p *Plugin) connected() { p.note(link{up: true}) }

func (p *Plugin) note(l link) {
	p.mu.Lock()
	p.link = l
	p.mu.Unlock()
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// watchCondition reports changes of the condition until ctx ends.
func (p *Plugin) watchCondition(ctx context.Context) {
	ticker := p.clk.NewTicker(conditionPoll)
	defer ticker.Stop()
	var told metav1.Condition
	for {
		if c := p.Condition(); c != told {
			told = c
			p.cfg.Pinned(c)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.poke:
		case <-ticker.C():
		}
	}
}
