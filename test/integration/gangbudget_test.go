// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestBudgetOfPartialGang checks that a budget keeps members of a gang that was never whole: a disruption
// budget refuses the rollback of a gang of three of which two run. The gang reports it, and the members
// are evicted once the budget is deleted.
func TestBudgetOfPartialGang(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{Controllers: true})
	l.install(t)
	l.makeFabric(t)
	groups := l.definePodGroups(t)
	l.makeRacks(t, 0, &scenario{free: freeRacks{{{8, 8, 8}}}})
	c := &leaderCase{name: "kept"}
	makeGroup(t, groups, c.name, 3, nil)
	member := func(i int) *v1.Pod {
		pod := l.groupMember(c.name, 0, i)
		pod.Labels["guarded"] = c.name
		return pod
	}
	l.create(t, member(0), member(1), member(2))
	unblock := l.refuseBindings(t, nodeOfRack(0, 0, 0), []string{c.member(2)})
	s := l.startScheduler(t, profile{
		name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin},
		args: map[string]string{gangPlugin: fmt.Sprintf("{scheduleTimeout: %s}", rollBackAfter)},
	})
	for i := range 2 {
		l.bound(t, c.member(i))
	}
	half := gangrequest.State{Attempt: 1, Whole: false}
	wantState(t, groups, c.name, half.Encode())
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	unblock()
	taken(t, l, c, 0)
	for i := range 2 {
		l.run(t, c.member(i), time.Now()) // a budget protects pods that run
	}
	l.guard(t, c.name, 2)

	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.wantEvent(t, c.name, "GangNotRolledBack", "0 of 2 members are evicted")
	for i := range 2 {
		if pod := l.get(t, c.member(i)); pod.DeletionTimestamp != nil {
			testkit.Violation(t, "pod %s is evicted beyond its budget", pod.Name)
		}
	}
	if n := l.scrape(t, s).sum("scheduler_nvtopo_gang_rollback_evictions_total"); n != 0 {
		t.Errorf("%v evictions are counted, want 0", n)
	}
	wantState(t, groups, c.name, half.Encode())

	if err := l.client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		l.wantGone(t, c.member(i))
	}
	l.wantEvent(t, c.name, "GangRolledBack", "2 members are evicted")
}
