// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// eventPlacedByCount is the reason of the event and of the condition on a pod placed by count.
const eventPlacedByCount = "PlacedByCount"

// byCountKey is the key under which Reserve stores why it chose no GPUs for a pod that needs some.
const byCountKey fwk.StateKey = "nvtopo.dev/by-count"

// byCount is why a node's graph was not valid; immutable.
type byCount string

// Clone returns the same text.
func (b byCount) Clone() fwk.StateData { return b }

// PostBind records that the pod is bound, sends the event with the GPUs it got, and marks a pod for which
// no GPUs were chosen because its node's graph was not valid. The mark is a condition for programs and an
// event for people. The scheduler itself does not need it: until the agent has recorded the pod's GPUs,
// the node's usage includes their number from the pod itself, so a lost mark frees nothing.
func (p *Plugin) PostBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	if !p.owns(state) {
		return
	}
	endBinding(state)
	p.shared.assumed.bind(pod)
	p.cordons.Bound(pod.UID, nodeName)
	if p.Cycle(state) == nil {
		return
	}
	p.sayChosen(state, pod)
	d, err := state.Read(byCountKey)
	if err != nil {
		return
	}
	why, _ := d.(byCount)
	message := "Placed on " + nodeName + " by the number of GPUs, without a choice of them: " + string(why)
	p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, eventPlacedByCount, "Binding", "%s", message)
	body, err := byCountBody(pod.UID, metav1.NewTime(p.shared.clock.Now()), message)
	if err == nil {
		_, err = p.handle.ClientSet().CoreV1().Pods(pod.Namespace).
			Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Marking a pod as placed by count failed", "pod", klog.KObj(pod), "node", nodeName)
	}
}

// byCountBody contains the UID, so that a new pod with the same name is refused.
func byCountBody(uid types.UID, now metav1.Time, message string) ([]byte, error) {
	var body struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
		Status struct {
			Conditions []v1.PodCondition `json:"conditions"`
		} `json:"status"`
	}
	body.Metadata.UID = uid
	body.Status.Conditions = []v1.PodCondition{{
		Type: allocation.ConditionPlacedByCount, Status: v1.ConditionTrue, LastTransitionTime: now, Reason: eventPlacedByCount, Message: message,
	}}
	return json.Marshal(body)
}
