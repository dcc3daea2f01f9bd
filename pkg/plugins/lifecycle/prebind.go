// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

// PreBindPreFlight announces a write only if PreBind will make one.
func (p *Plugin) PreBindPreFlight(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if p.state.Pending(pod.UID, nodeName) == nil {
		if p.clears(state, pod, nodeName) {
			return nil
		}
		return fwk.NewStatus(fwk.Skip)
	}
	if p.Profile.WriteInBind {
		return fwk.NewStatus(fwk.Skip)
	}
	if p.handle.GetWaitingPod(pod.UID) == nil {
		p.state.Announced(pod.UID, nodeName)
	}
	return nil
}

// PreBind writes the whole choice in one PATCH, by the plugin that comes first; the
// other has nothing left to write. The response is not used: the pod object belongs to
// the scheduler's cache. A feature gate of kube-scheduler decides whether
// PreBindPreFlight was called before.
func (p *Plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	a := p.state.Pending(pod.UID, nodeName)
	if a == nil && !p.clears(state, pod, nodeName) || a != nil && p.Profile.WriteInBind {
		return nil
	}
	end, err := p.state.BeginWrite(ctx, pod.UID, nodeName)
	if err != nil {
		return fwk.AsStatus(err)
	}
	defer end()
	if err := p.present(pod); err != nil {
		return fwk.AsStatus(err)
	}
	var annotations map[string]string
	if a == nil {
		err = p.state.Leads(ctx) // a successor may have made a choice for the pod
	} else if err = p.state.CheckLeader(ctx, pod.UID, nodeName); err == nil {
		annotations, err = p.state.Annotations(a, p.Profile.WriteAliases)
	}
	if err != nil {
		return fwk.AsStatus(err)
	}
	body, err := allocation.ChoiceBody(pod, annotations, p.Profile.WriteAliases)
	if err != nil {
		return fwk.AsStatus(err)
	}
	return fwk.AsStatus(p.write(ctx, pod, nodeName, body))
}

// write sends the PATCH and records in the reservation how it ended.
func (p *Plugin) write(ctx context.Context, pod *v1.Pod, nodeName string, body []byte) (err error) {
	// A PATCH without a clear answer may be carried out later, over another choice that
	// was made in the meantime. From here on the reservation may only become doubtful.
	p.state.BindingBegan(pod.UID, nodeName)
	ctx, cancel := p.state.Bounded(ctx)
	defer cancel()
	// err keeps the error of the last attempt: when the context ends, retry.OnError
	// would return an earlier error or none.
	tries := 0
	var sent sends
	counted := sent.count(ctx)
	_ = retry.OnError(retry.DefaultBackoff, schedutil.Retriable, func() error {
		tries++
		_, err = p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(counted, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
	once := tries == 1 && sent.once()
	if err != nil {
		if once && nodestate.Refused(err) {
			p.state.BindingRefused(pod.UID, nodeName)
		}
		return fmt.Errorf("writing the choice on pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	p.state.Written(pod.UID, nodeName)
	if once && p.bindsFirst() {
		p.state.WriteEnded(pod.UID, nodeName)
	}
	return nil
}

// clears reports whether a pod that is bound without a choice has, or may have, the
// choice of an earlier attempt on it. It would be bound with that, and have GPUs that
// other pods got since. A new leader may not know of a choice that its predecessor
// wrote.
func (p *Plugin) clears(state fwk.CycleState, pod *v1.Pod, nodeName string) bool {
	c := p.Cycle(state)
	if c == nil || c.FilteredBy != p.name { // only one of the plugins does it
		return false
	}
	present, earlier := p.state.Attempts(pod.UID, nodeName)
	if present {
		return false
	}
	for key := range pod.Annotations {
		earlier = earlier || allocation.Writes(key, p.Profile.WriteAliases)
	}
	return earlier || c.Demand.HasGPUs() && p.state.TakingOver()
}
