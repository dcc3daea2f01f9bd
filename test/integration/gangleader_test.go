// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	groupsclient "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned/typed/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// leaderCase is a gang of three on three nodes of its own, whose scheduler ends when two of them are
// bound, or all three.
type leaderCase struct {
	name  string
	half  bool   // the third member's Binding is refused
	state string // state that is written over the present one meanwhile
	// away runs before the next scheduler starts.
	away func(t *testing.T, l *testEnv, c *leaderCase, number int)

	bound   []string // members that are bound in the end
	evicted []string // members that are evicted
	settled string   // final state
}

// taken gives the remaining node to another pod.
func taken(t *testing.T, l *testEnv, c *leaderCase, number int) {
	t.Helper()
	used := map[string]bool{}
	for i := range 2 {
		used[l.get(t, c.member(i)).Spec.NodeName] = true
	}
	for i := range 3 {
		if node := fmt.Sprintf("s%d-node-0-%d", number, i); !used[node] {
			l.create(t, gpuPod("taker-"+c.name, "other", 8).Obj())
			l.bindTo(t, node, "taker-"+c.name)
		}
	}
}

func (c *leaderCase) member(i int) string { return c.name + "-" + strconv.Itoa(i) }

func leaderCases() []*leaderCase {
	died := func(t *testing.T, l *testEnv, c *leaderCase, _ int) {
		t.Helper()
		l.remove(t, c.member(2))
	}
	return []*leaderCase{
		{
			name: "follows", half: true, bound: []string{"follows-0", "follows-1", "follows-2"}, settled: `{"attempt":1,"whole":true}`,
		},
		{
			name: "stuck", half: true,
			away:    taken,
			evicted: []string{"stuck-0", "stuck-1"}, settled: `{"attempt":1,"whole":false}`,
		},
		{
			name: "unreadable", half: true, state: `{"attempt":1, "whole":false}`,
			away:  taken,
			bound: []string{"unreadable-0", "unreadable-1"}, settled: `{"attempt":1, "whole":false}`,
		},
		{
			name: "died",
			away: func(t *testing.T, l *testEnv, c *leaderCase, n int) {
				t.Helper()
				died(t, l, c, n)
				l.create(t, l.groupMember(c.name, n, 2))
			},
			bound: []string{"died-0", "died-1", "died-2"}, settled: `{"attempt":1,"whole":true}`,
		},
		{
			name: "whole",
			away: func(t *testing.T, l *testEnv, c *leaderCase, n int) {
				t.Helper()
				died(t, l, c, n)
				taken(t, l, c, n)
				l.create(t, l.groupMember(c.name, n, 2))
			},
			bound: []string{"whole-0", "whole-1"}, settled: `{"attempt":1,"whole":true}`,
		},
		{
			name: "lost", state: `{"attempt":1,"whole":false}`, bound: []string{"lost-0", "lost-1", "lost-2"}, settled: `{"attempt":1,"whole":true}`,
		},
	}
}

// groupMember returns a member of a PodGroup, restricted to the nodes of a scenario.
func (*testEnv) groupMember(group string, number, i int) *v1.Pod {
	return groupPod(group, i).NodeSelector(ofScenario(number)).Obj()
}

// rollBackAfter is the least configurable value.
const rollBackAfter = 10 * time.Second

// TestGangFailover ends the scheduler when gangs are bound in part or as a whole, and starts another one.
// It evicts only the members of the one gang that was never whole and whose rest has no place.
func TestGangFailover(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	groups := l.definePodGroups(t)
	cases := leaderCases()
	for number, c := range cases {
		s := scenario{free: freeRacks{{{8, 8, 8}}}}
		l.makeRacks(t, number, &s)
		makeGroup(t, groups, c.name, 3, nil)
		for i := range 3 {
			l.create(t, l.groupMember(c.name, number, i))
		}
	}
	var blocked []string
	for _, c := range cases {
		if c.half {
			blocked = append(blocked, c.member(2))
		}
	}
	unblock := l.refuseBindings(t, "s0-node-0-0", blocked)
	s := l.startScheduler(t, profile{
		name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin},
		args: map[string]string{gangPlugin: fmt.Sprintf("{scheduleTimeout: %s}", rollBackAfter)},
	})
	for _, c := range cases {
		for i := range 3 {
			if i < 2 || !c.half {
				l.bound(t, c.member(i))
			}
		}
		want := gangrequest.State{Attempt: 1, Whole: !c.half}
		wantState(t, groups, c.name, want.Encode())
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	unblock()
	for number, c := range cases {
		if c.state != "" {
			body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, gangrequest.StateKey, c.state)
			if _, err := groups.Patch(t.Context(), c.name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if c.away != nil {
			c.away(t, l, c, number)
		}
	}
	began := time.Now() // before the new leader can have started its timer
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for _, name := range c.evicted {
			l.wantGone(t, name)
			if took := time.Since(began); took < rollBackAfter { // a slow machine only exceeds it
				t.Errorf("%s was evicted after %v", name, took)
			}
			l.wantEvent(t, name, "GangRolledBack", "never whole")
		}
	}
	l.wantEvent(t, "stuck", "GangRolledBack", "2 members are evicted")
	counts := l.scrape(t, s)
	if n, m := counts.sum("scheduler_nvtopo_gang_rollbacks_total"), counts.sum("scheduler_nvtopo_gang_rollback_evictions_total"); n != 1 || m != 2 {
		t.Errorf("%v roll-backs and %v evictions are counted, want 1 and 2", n, m)
	}
	testkit.Naps(rollBackAfter) // time in which others could be evicted
	for _, c := range cases {
		for _, name := range c.bound {
			l.bound(t, name)
		}
		wantState(t, groups, c.name, c.settled)
	}
	for _, name := range []string{"stuck-2", "unreadable-2", "whole-2"} {
		if node := l.get(t, name).Spec.NodeName; node != "" {
			t.Errorf("%s is bound to %s, whose GPUs are another pod's", name, node)
		}
	}

	for state, want := range map[string]float64{"bound": 3, "on_the_way": 0} {
		if n := l.scrape(t, s).sum("scheduler_nvtopo_gangs", fmt.Sprintf("state=%q", state)); n != want {
			t.Errorf("%v gangs are %s, want %v", n, state, want)
		}
	}

	// The evicted gang comes again as a whole.
	l.remove(t, "taker-stuck")
	for i := range 2 {
		l.create(t, l.groupMember("stuck", 1, i))
	}
	for i := range 3 {
		l.bound(t, fmt.Sprintf("stuck-%d", i))
	}
	wantState(t, groups, "stuck", `{"attempt":2,"whole":true}`)
}

// wantState waits until a PodGroup has a state.
func wantState(t *testing.T, groups groupsclient.PodGroupInterface, name, want string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, "PodGroup "+name+" has the state "+want, func(ctx context.Context) (bool, string) {
		group, err := groups.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return group.Annotations[gangrequest.StateKey] == want, group.Annotations[gangrequest.StateKey]
	})
}

// wantGone waits until a pod is gone.
func (e *testEnv) wantGone(t *testing.T, name string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, "pod "+name+" is gone", func(ctx context.Context) (bool, string) {
		_, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// refuseBindings makes the API server refuse the Bindings of pods, which exist, until it is undone.
func (e *testEnv) refuseBindings(t *testing.T, node string, names []string) (undo func()) {
	t.Helper()
	const name = "refuse-bindings"
	policy := fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/binding]}]
  validations: [{expression: "!(request.name in ['%[2]s'])", message: "not yet"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, name, strings.Join(names, "','"))
	if err := e.ApplyManifests(t.Context(), fstest.MapFS{"policy.yaml": {Data: []byte(policy)}}); err != nil {
		t.Fatal(err)
	}
	pods := e.client.CoreV1().Pods(metav1.NamespaceDefault)
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: names[0]}, Target: v1.ObjectReference{Kind: "Node", Name: node},
	}
	await := func(refused bool) {
		testkit.Eventually(t, waitLimit, "the policy "+name+" comes or goes", func(ctx context.Context) (bool, string) {
			err := pods.Bind(ctx, binding, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return (err != nil) == refused, fmt.Sprint(err)
		})
	}
	await(true)
	return func() {
		t.Helper()
		if err := e.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await(false)
	}
}
