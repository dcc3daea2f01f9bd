// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

// TestEligibility: the properties of a node that keep a pod off it.
func TestEligibility(t *testing.T) {
	taint := func(effect v1.TaintEffect) v1.NodeSpec {
		return v1.NodeSpec{Taints: []v1.Taint{{Key: "k", Effect: effect}}}
	}
	tolerates := v1.PodSpec{Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}}}
	atMost := func(value string) v1.PodSpec { // as the feature gate TaintTolerationComparisonOperators lets it
		return v1.PodSpec{Tolerations: []v1.Toleration{{Key: "hours", Operator: v1.TolerationOpLt, Value: value, Effect: v1.TaintEffectNoSchedule}}}
	}
	hours := v1.NodeSpec{Taints: []v1.Taint{{Key: "hours", Value: "950", Effect: v1.TaintEffectNoSchedule}}}
	selects := v1.PodSpec{NodeSelector: map[string]string{"zone": "a"}}
	for name, tc := range map[string]struct {
		pod    v1.PodSpec
		node   v1.NodeSpec
		labels map[string]string
		want   Ineligible
	}{
		"nothing":                            {},
		"its selector, which is met":         {pod: selects, labels: map[string]string{"zone": "a"}},
		"its selector":                       {pod: selects, node: v1.NodeSpec{Unschedulable: true}, labels: map[string]string{"zone": "b"}, want: NotSelected},
		"a cordon":                           {node: v1.NodeSpec{Unschedulable: true}, want: Unschedulable},
		"a cordon that it tolerates":         {pod: tolerates, node: v1.NodeSpec{Unschedulable: true}},
		"a taint NoSchedule":                 {node: taint(v1.TaintEffectNoSchedule), want: Tainted},
		"a taint NoExecute":                  {node: taint(v1.TaintEffectNoExecute), want: Tainted},
		"a taint NoExecute that is no cause": {pod: tolerates, node: taint(v1.TaintEffectNoExecute)},
		"a taint PreferNoSchedule is none":   {node: taint(v1.TaintEffectPreferNoSchedule)},
		"a taint of more than it tolerates":  {pod: atMost("900"), node: hours, want: Tainted},
		"a taint of less than it tolerates":  {pod: atMost("1000"), node: hours},
	} {
		t.Run(name, func(t *testing.T) {
			e := EligibilityOf(&v1.Pod{Spec: tc.pod})
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: tc.labels}, Spec: tc.node}
			if got, _ := e.Judge(node); got != tc.want || e.Allows(node) != (tc.want == Eligible) {
				t.Errorf("%d, allowed: %t; want %d", got, e.Allows(node), tc.want)
			}
		})
	}
}

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

// TestHostPorts: the ports of a pod on its node are those that kube-scheduler uses. A restartable init
// container has its ports as long as the other containers.
func TestHostPorts(t *testing.T) {
	port := func(c *testobj.PodWrapper, of func(*v1.PodSpec) []v1.Container) *v1.Pod {
		of(&c.Obj().Spec)[0].Ports = []v1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 80, HostPort: 81}}
		return c.Obj()
	}
	containers := func(s *v1.PodSpec) []v1.Container { return s.Containers }
	initial := func(s *v1.PodSpec) []v1.Container { return s.InitContainers }
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want int
	}{
		"no port":                              {pod: testobj.Pod("p").Obj()},
		"of a container":                       {pod: port(testobj.Pod("p").Containers(v1.Container{}), containers), want: 1},
		"of an initial container that goes on": {pod: port(testobj.Pod("p").InitContainers(v1.Container{RestartPolicy: new(v1.ContainerRestartPolicyAlways)}), initial), want: 1},
		"of an initial container that ends":    {pod: port(testobj.Pod("p").InitContainers(v1.Container{}), initial)},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewShape(tc.pod, asking(1))
			if err != nil || len(s.Ports) != tc.want || s.Alone != (tc.want > 0) {
				t.Errorf("ports on the node: %v (%v), one pod on each: %t; want %d", s.Ports, err, s.Alone, tc.want)
			}
		})
	}
}
