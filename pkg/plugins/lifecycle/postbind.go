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

	"github.com/nvtopo/nvtopo/pkg/allocation"
)

// reasonPlacedByCount is the reason of the event on such a pod, and of its condition.
const reasonPlacedByCount = "PlacedByCount"

// byCountKey is where Reserve leaves why it chose nothing for a pod with GPUs.
const byCountKey fwk.StateKey = "nvtopo.dev/by-count"

// byCount is what a node's graph lacked; immutable.
type byCount string

// Clone returns the same text.
func (b byCount) Clone() fwk.StateData { return b }

// PostBind marks a pod whose GPUs nobody chose because its node's graph did not count:
// a condition for programs, an event for people. The mark is for them only. What is
// used on the node is known by count from the pod itself until the agent has
// recorded its GPUs, so a mark that is lost frees nothing.
func (p *Plugin) PostBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	endBinding(state)
	c := p.Cycle(state)
	if c == nil || c.FilteredBy != p.name { // once for both plugins
		return
	}
	d, err := state.Read(byCountKey)
	if err != nil {
		return
	}
	why, _ := d.(byCount)
	message := "Placed on " + nodeName + " by the number of GPUs, without a choice of them: " + string(why)
	p.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, reasonPlacedByCount, "Binding", "%s", message)
	body, err := byCountBody(pod.UID, metav1.NewTime(p.shared.clock.Now()), message)
	if err == nil {
		_, err = p.handle.ClientSet().CoreV1().Pods(pod.Namespace).
			Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Marking a pod as placed by count failed", "pod", klog.KObj(pod), "node", nodeName)
	}
}

// byCountBody carries the UID, so that a pod made anew under the name is refused.
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
		Type: allocation.ConditionPlacedByCount, Status: v1.ConditionTrue, LastTransitionTime: now, Reason: reasonPlacedByCount, Message: message,
	}}
	return json.Marshal(body)
}
