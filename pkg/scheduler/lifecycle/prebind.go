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

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// PreBindPreFlight announces a write only if PreBind will make one.
func (p *Plugin) PreBindPreFlight(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	attempt := p.binder.Attempt(pod.UID, nodeName)
	if !p.owns(state) || !p.writes(state, pod, attempt) {
		return fwk.NewStatus(fwk.Skip)
	}
	if attempt.Pending() != nil && p.handle.GetWaitingPod(pod.UID) == nil {
		attempt.Announce()
	}
	return nil
}

// writes reports whether PreBind has something to write: an allocation that does not travel on the
// Binding, an earlier one to remove, or a finalizer. With a finalizer the allocation is written as well,
// since a Binding carries none.
func (p *Plugin) writes(state fwk.CycleState, pod *v1.Pod, attempt nodestate.Attempt) bool {
	switch {
	case attempt.Pending() != nil:
		return !p.Profile.WriteInBind || getsFinalizer(pod, p.namespaces)
	case attempt.HasChoice(): // it is on the pod
		return false
	}
	return p.clears(state, pod, attempt) || getsFinalizer(pod, p.namespaces)
}

// PreBind writes the whole allocation in one PATCH. The response is not used: the pod object belongs to
// the scheduler's cache. A feature gate of kube-scheduler decides whether PreBindPreFlight was called
// before.
func (p *Plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	attempt := p.binder.Attempt(pod.UID, nodeName)
	if !p.owns(state) || !p.writes(state, pod, attempt) {
		return nil
	}
	a := attempt.Pending()
	end, err := attempt.BeginWrite(ctx)
	if err != nil {
		return fwk.AsStatus(err)
	}
	defer end()
	if err := p.present(pod); err != nil {
		return fwk.AsStatus(err)
	}
	var annotations map[string]string
	if a == nil {
		err = p.leader.Check(ctx) // a successor may have made an allocation for the pod
	} else if err = attempt.MayCarryOut(ctx); err == nil {
		annotations, err = p.annotations(state, pod, a)
	}
	if err != nil {
		return fwk.AsStatus(err)
	}
	var finalizers []string
	if getsFinalizer(pod, p.namespaces) {
		finalizers = append(finalizers, names.FinalizerMetering)
	}
	body, err := allocation.ChoiceBody(pod, annotations, p.Profile.WriteAliases, finalizers...)
	if err != nil {
		return fwk.AsStatus(err)
	}
	return fwk.AsStatus(p.write(ctx, pod, attempt, body))
}

// annotations returns the annotations to write on the pod: its allocation, why it was chosen, and its
// rank if it is in a gang.
func (p *Plugin) annotations(state fwk.CycleState, pod *v1.Pod, a *allocation.Allocation) (map[string]string, error) {
	annotations, err := p.nodes.Annotations(a, p.Profile.WriteAliases)
	if err != nil {
		return nil, err
	}
	if why := decisionOf(state, a); why != "" {
		annotations[allocation.DecisionKey] = why
	}
	state.Write(chosenKey, chosenNote(a, annotations, ReadCycle(state)))
	if _, member := gangrequest.KeyOf(pod); !member || p.Profile.Rank == nil {
		return annotations, nil
	}
	if rank, ok := p.Profile.Rank(pod.UID); ok {
		annotations[gangrequest.RankKey] = gangrequest.FormatRank(rank)
	}
	return annotations, nil
}

// write sends the PATCH and records its outcome in the reservation.
func (p *Plugin) write(ctx context.Context, pod *v1.Pod, attempt nodestate.Attempt, body []byte) (err error) {
	// A PATCH without a clear answer may be carried out later, over another allocation that was made in the
	// meantime. From here on the outcome may be unknown.
	attempt.BindingBegan()
	ctx, cancel := p.binder.Bounded(ctx)
	defer cancel()
	// err keeps the error of the last attempt: when the context ends, retry.OnError
	// would return an earlier error or none.
	tries := 0
	var sent sends
	traced := sent.count(ctx)
	_ = retry.OnError(retry.DefaultBackoff, schedutil.Retriable, func() error {
		tries++
		_, err = p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(traced, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		return err
	})
	once := tries == 1 && sent.once()
	if err != nil {
		if once && nodestate.ProvesNoWrite(err) {
			attempt.BindingRefused()
		}
		return fmt.Errorf("writing the choice on pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	attempt.Written()
	if once && p.bindsFirst() {
		attempt.WriteEnded()
	}
	return nil
}

// clears reports whether a pod that is bound without an allocation has, or may have, the allocation of an
// earlier attempt on it. It would be bound with that, and have GPUs that other pods got since. A new
// leader may not know of an allocation that its predecessor wrote.
func (p *Plugin) clears(state fwk.CycleState, pod *v1.Pod, attempt nodestate.Attempt) bool {
	c := p.Cycle(state)
	if c == nil || attempt.HasChoice() {
		return false
	}
	earlier := attempt.Earlier()
	for key := range pod.Annotations {
		earlier = earlier || allocation.Writes(key, p.Profile.WriteAliases)
	}
	return earlier || c.Demand.HasGPUs() && p.leader.TakingOver()
}
