// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

func TestClosedNodes(t *testing.T) {
	reports := func() *testobj.NodeWrapper {
		return testobj.Node("n").Condition(v1.NodeMemoryPressure, v1.ConditionFalse)
	}
	for name, tc := range map[string]struct {
		node *v1.Node
		want string
	}{
		"ready":                  {reports().Ready(v1.ConditionTrue).Obj(), ""},
		"no conditions yet":      {testobj.Node("n").Obj(), ""},
		"not ready":              {reports().Ready(v1.ConditionFalse).Obj(), "not ready"},
		"nothing heard of it":    {reports().Ready(v1.ConditionUnknown).Obj(), "not ready"},
		"cordoned":               {reports().Unschedulable().Ready(v1.ConditionTrue).Obj(), "cordoned"},
		"cordoned and not ready": {reports().Unschedulable().Ready(v1.ConditionFalse).Obj(), "cordoned"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Closed(tc.node); got != tc.want {
				t.Errorf("it is closed because %q, want %q", got, tc.want)
			}
		})
	}
}
