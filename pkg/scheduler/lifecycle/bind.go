// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// Bind puts the allocation on the Binding. The API server merges it into the pod in the write that sets
// the pod's node. Pods without an allocation are left to DefaultBinder.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	attempt := p.binder.Attempt(pod.UID, nodeName)
	if err := p.beginBinding(ctx, state, attempt); err != nil {
		return fwk.AsStatus(err)
	}
	if err := p.present(pod); err != nil {
		return fwk.AsStatus(err)
	}
	if units.AsksForDevices(pod) {
		if err := p.binder.MayBind(ctx, nodeName); err != nil {
			return fwk.AsStatus(err)
		}
	}
	// Also if the allocation is already written: the process may have been paused since then.
	if err := attempt.MayCarryOut(ctx); err != nil {
		return fwk.AsStatus(err)
	}
	a := attempt.Pending()
	if !p.Profile.WriteInBind || a == nil {
		attempt.BindingBegan() // another plugin sends the Binding and gets the answer
		return fwk.NewStatus(fwk.Skip)
	}
	annotations, err := p.annotations(state, pod, a)
	if err != nil {
		return fwk.AsStatus(err)
	}
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: nodeName},
	}
	attempt.BindingBegan()
	ctx, cancel := p.binder.Bounded(ctx)
	defer cancel()
	refused, err := p.bind(ctx, binding)
	if err != nil {
		if refused {
			attempt.BindingRefused()
		}
		return fwk.AsStatus(fmt.Errorf("binding pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	attempt.Written()
	return nil
}

// present fails if the pod was deleted or has ended since its cycle began. The API server would still
// bind a pod that has ended, and the scheduler would get no event that the pod is gone.
func (p *Plugin) present(pod *v1.Pod) error {
	if p.allocations.Gone(pod.UID) || p.shared.assumed.left(pod.UID) {
		return fmt.Errorf("pod %s/%s: %s", pod.Namespace, pod.Name, placement.PodGone)
	}
	return nil
}

// bind uses the API cacher if there is one, as DefaultBinder does, so that the scheduler's own view stays
// consistent. On an error, refused reports whether the API server certainly refused. It is unknown how
// often the cacher sends the Binding.
func (p *Plugin) bind(ctx context.Context, b *v1.Binding) (refused bool, err error) {
	if cacher := p.handle.APICacher(); cacher != nil {
		done, err := cacher.BindPod(b)
		if err != nil {
			return false, err
		}
		return false, cacher.WaitOnFinish(ctx, done)
	}
	var sent sends
	err = p.handle.ClientSet().CoreV1().Pods(b.Namespace).Bind(sent.count(ctx), b, metav1.CreateOptions{})
	return sent.once() && nodestate.ProvesNoWrite(err), err
}
