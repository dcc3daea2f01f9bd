// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"testing"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
)

// TestRefusedMemberIsGated has members in the scheduler's own queue. Events of the cluster cost nothing for those
// that are gated there.
func TestRefusedMemberIsGated(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		racks []int
		apart bool // a gang is held on one node of each rack
		notes map[string]string
	}{
		"a gang without room":                 {racks: []int{1}},
		"a gang that waits for better places": {racks: []int{2, 2}, apart: true, notes: map[string]string{gangrequest.PatienceKey: "10m"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newTestEnv(t, tc.racks...)
			if tc.apart {
				others := e.gang("apart", 2, 8, map[string]string{gangrequest.StrategyKey: "compute-heavy"})
				e.known(others[0])
				if c := e.cycle(others[0]); !c.status.IsWait() {
					t.Fatal(c.status)
				}
			}
			byName := map[string]fwk.PreEnqueuePlugin{}
			for _, p := range e.fw.PreEnqueuePlugins() {
				byName[p.Name()] = p
			}
			queue := internalqueue.NewTestQueue(t.Context(), e.fw.QueueSortFunc(),
				internalqueue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{profileName: byName}))
			e.awake.forward(queue)
			pods := e.gang("g", 2, 8, tc.notes)
			e.known(pods[0])
			logger := klog.Background()
			for _, pod := range pods {
				queue.Add(logger, pod)
			}
			testkit.Soon(t, "one member is let in", func() bool { return len(queue.PodsInActiveQ()) == 1 })
			member, err := queue.Pop(logger)
			if err != nil {
				t.Fatal(err)
			}
			if c := e.cycle(member.Pod); c.status.Code() != fwk.UnschedulableAndUnresolvable {
				t.Fatalf("status %v, want a refusal", c.status)
			}
			member.UnschedulablePlugins.Insert(gang.Name)
			if err := queue.AddUnschedulableIfNotPresent(logger, member, queue.SchedulingCycle()); err != nil {
				t.Fatal(err)
			}
			if !member.Gated() {
				t.Errorf("member %s is not gated after it was refused, want it to be", member.Pod.Name)
			}
		})
	}
}
