// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	groupsclient "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned/typed/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	otherGangProfile   = "with-gangs-too"
	bindingGangProfile = "with-gangs-binding"
	countedGangProfile = "with-gangs-counted" // has the pods of one flow only
)

// flow is a sequence of steps on nodes of its own.
type flow struct {
	name string
	free freeRacks
	run  func(t *testing.T, s *gangScenarios)
}

// gangScenarios is the environment of a flow.
type gangScenarios struct {
	*testEnv
	number    int // of the nodes
	groups    groupsclient.PodGroupInterface
	scheduler *devcluster.Scheduler
}

// TestGangFlows is the part of the table of acceptance with events after the arrival of a gang, and other
// events of gangs. The flows share a cluster, and wait for most of their time.
func TestGangFlows(t *testing.T) { //nolint:tparallel // newTestEnv calls t.Parallel
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	groups := l.definePodGroups(t)
	flows := append(acceptedFlows(), changingFlows()...)
	for i := range flows {
		l.makeRacks(t, i, &scenario{free: flows[i].free})
	}
	plugins := []string{gangPlugin, topologyPlugin, numaPlugin}
	scheduler := l.startScheduler(t,
		profile{name: gangProfile, write: "PreBind", plugins: plugins},
		profile{name: otherGangProfile, write: "PreBind", plugins: plugins},
		profile{name: countedGangProfile, write: "PreBind", plugins: plugins},
		profile{name: bindingGangProfile, write: "Binding", plugins: plugins, binders: []string{topologyPlugin, "DefaultBinder"}})
	for i := range flows {
		t.Run(flows[i].name, func(t *testing.T) {
			t.Parallel()
			l.fill(t, i, &scenario{free: flows[i].free})
			flows[i].run(t, &gangScenarios{testEnv: l, number: i, groups: groups, scheduler: scheduler})
		})
	}
}

// gang returns members with a whole node each, restricted to the nodes of the flow.
func (s *gangScenarios) gang(name string, pods int, more notes) []*v1.Pod {
	return gangPods(s.number, fmt.Sprintf("s%d-%s", s.number, name), pods, 8, more)
}

// grouped returns members of a PodGroup with a whole node each.
func (s *gangScenarios) grouped(name string, pods int) []*v1.Pod {
	out := groupPods(fmt.Sprintf("s%d-%s", s.number, name), pods)
	for _, pod := range out {
		pod.Spec.NodeSelector = ofScenario(s.number)
	}
	return out
}

// single returns a pod with a whole node that is no member.
func (s *gangScenarios) single(name string) *v1.Pod {
	return gpuPod(fmt.Sprintf("s%d-%s", s.number, name), gangProfile, 8).NodeSelector(ofScenario(s.number)).Obj()
}

// empty removes the pod that fill put on a node of the first rack.
func (s *gangScenarios) empty(t *testing.T, i int) {
	t.Helper()
	s.remove(t, "taker-"+nodeOfRack(s.number, 0, i))
}

// boundOf counts the pods that have a node now.
func (s *gangScenarios) boundOf(t *testing.T, pods []*v1.Pod) (n int) {
	t.Helper()
	for _, pod := range pods {
		if s.get(t, pod.Name).Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// wantApart waits until all pods are bound, each on a node of its own, and returns how long that took.
func (s *gangScenarios) wantApart(t *testing.T, pods []*v1.Pod) time.Duration {
	t.Helper()
	start, owner := time.Now(), map[string]string{}
	for _, pod := range pods {
		node := s.bound(t, pod.Name).Spec.NodeName
		if other, ok := owner[node]; ok {
			testkit.Violation(t, "pods %s and %s are both on %s, which has room for one", other, pod.Name, node)
		}
		owner[node] = pod.Name
	}
	return time.Since(start)
}

// wantNoHold fails if one of these pods has a node, or is nominated to one.
func (s *gangScenarios) wantNoHold(t *testing.T, pods []*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		got := s.get(t, pod.Name)
		if got.Spec.NodeName != "" || got.Status.NominatedNodeName != "" {
			t.Errorf("pod %s is on %q, nominated to %q; want neither", pod.Name, got.Spec.NodeName, got.Status.NominatedNodeName)
		}
	}
}

// patience returns an annotation with the time for which a gang waits for a better level.
func patience(d time.Duration) notes { return notes{gangrequest.PatienceKey: d.String()} }
