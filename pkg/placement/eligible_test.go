// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestClosedNodes(t *testing.T) {
	ready := func(status v1.ConditionStatus) v1.NodeStatus {
		return v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse}, {Type: v1.NodeReady, Status: status}}}
	}
	for name, tc := range map[string]struct {
		node v1.Node
		want string
	}{
		"ready":                  {v1.Node{Status: ready(v1.ConditionTrue)}, ""},
		"no conditions yet":      {v1.Node{}, ""},
		"not ready":              {v1.Node{Status: ready(v1.ConditionFalse)}, "not ready"},
		"nothing heard of it":    {v1.Node{Status: ready(v1.ConditionUnknown)}, "not ready"},
		"cordoned":               {v1.Node{Spec: v1.NodeSpec{Unschedulable: true}, Status: ready(v1.ConditionTrue)}, "cordoned"},
		"cordoned and not ready": {v1.Node{Spec: v1.NodeSpec{Unschedulable: true}, Status: ready(v1.ConditionFalse)}, "cordoned"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Closed(&tc.node); got != tc.want {
				t.Errorf("it is closed because %q, want %q", got, tc.want)
			}
		})
	}
}
