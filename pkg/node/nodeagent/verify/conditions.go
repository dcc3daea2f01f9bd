// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
)

// Reasons of the Enforced condition.
const (
	ReasonSteering             = "Steering"
	ReasonNoResourceRegistered = "NoResourceRegistered"
	ReasonKubeletGone          = "KubeletGone"
	ReasonDevicePluginGone     = "DevicePluginGone"
	ReasonRecordUnreadable     = "RecordUnreadable"
	ReasonPublishFailing       = "PublishFailing"
)

// maxMessage limits a condition's message, in bytes; the log has the full text.
const maxMessage = 1024

// enforced returns the Enforced condition for the state of the resources. recordErr is the error of
// reading kubelet's record, publishErr that of publishing it unchanged. out is the part that is not
// published although each device in use is; it only appears in the message.
func enforced(resources []interposer.ResourceStatus, recordErr, publishErr error, out leftOut) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionEnforced, Status: metav1.ConditionFalse}
	var good, unregistered, orphaned []string
	for i := range resources {
		switch r := &resources[i]; {
		case !r.Registered:
			unregistered = append(unregistered, r.Resource)
		case !r.InnerConnected:
			orphaned = append(orphaned, r.Resource)
		default:
			good = append(good, r.Resource)
		}
	}
	for _, l := range [][]string{good, unregistered, orphaned} {
		slices.Sort(l)
	}
	switch {
	case len(resources) == 0:
		c.Reason = ReasonNoResourceRegistered
		c.Message = "no device plugin has registered with the agent; the plugin's KUBELET_SOCKET must name the agent's kubelet.sock"
	case publishErr != nil:
		c.Reason, c.Message = ReasonPublishFailing, publishErr.Error()
	case recordErr != nil:
		c.Reason, c.Message = ReasonRecordUnreadable, recordErr.Error()
	case len(good) == 0 && len(orphaned) == 0:
		c.Reason = ReasonKubeletGone
		c.Message = fmt.Sprintf("kubelet has no registration of %s: it is not running or refuses the agent", strings.Join(unregistered, ", "))
	case len(good) == 0:
		c.Reason = ReasonDevicePluginGone
		c.Message = "the agent has lost the device plugin of " + strings.Join(orphaned, ", ")
	default:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonSteering
		c.Message = "kubelet takes the devices of " + strings.Join(good, ", ") + " that the scheduler chose"
		if len(unregistered) > 0 {
			c.Message += "; not registered with kubelet: " + strings.Join(unregistered, ", ")
		}
		if len(orphaned) > 0 {
			c.Message += "; without a device plugin: " + strings.Join(orphaned, ", ")
		}
		if text := out.String(); text != "" {
			c.Message += "; " + text
		}
	}
	return shorten(c)
}

func shorten(c metav1.Condition) metav1.Condition {
	c.Message = v1alpha1.WithoutControls(c.Message)
	if len(c.Message) > maxMessage {
		c.Message = strings.ToValidUTF8(c.Message[:maxMessage], "") + " …"
	}
	return c
}

// stamp sets the transition times of conditions. A condition keeps its time from old unless its status
// has changed.
func stamp(conds, old []metav1.Condition, now metav1.Time) {
	for i := range conds {
		conds[i].LastTransitionTime = now
		if c := meta.FindStatusCondition(old, conds[i].Type); c != nil && c.Status == conds[i].Status && !c.LastTransitionTime.IsZero() {
			conds[i].LastTransitionTime = c.LastTransitionTime
		}
	}
}
