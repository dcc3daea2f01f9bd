// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// changingFlows returns flows in which members and PodGroups change.
func changingFlows() []flow {
	rack, half := freeRacks{{{8, 8, 8, 8}}}, freeRacks{{{8, 8, 0, 0}}}
	return []flow{
		{"the member that plans is deleted while the gang waits", half, testPlannerDeleted},
		{"members are deleted and made anew while the gang is placed", rack, testMembersMadeAnew},
		{"a member with a scheduling gate", rack, testGated},
		{"a member above the minimum with a scheduling gate", rack, testSurplusGated},
		{"members of two profiles", rack, testTwoProfilesOfGangs},
		{"members that change while the gang is placed", rack, testMembersChange},
		{"a minimum that is raised while the gang waits", half, testMinimumRaised},
		{"a minimum that is raised when the gang is whole", rack, testWholeMinimumRaised},
		{"a member is replaced beside one that succeeded", rack, testReplacedBesideSucceeded},
		{"members of an earlier run that succeeded", rack, testEarlierRun},
		{"annotations on the Binding", rack, testGangOfBindings},
	}
}

// testPlannerDeleted has four members of which three must start together.
func testPlannerDeleted(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("led", 4, notes{gangrequest.GangSizeKey: "3"})
	s.create(t, pods...)
	s.wantGangRefused(t, pods, "2 of 3")
	s.drop(t, pods[0].Name)
	s.empty(t, 2)
	s.empty(t, 3)
	took := s.wantApart(t, pods[1:])
	t.Logf("expected: the other three are bound; got: after %d ms", took.Milliseconds())
}

// testMembersMadeAnew deletes another member in each round, a little later each time, the planning one
// first, and recreates it under its name. The rack has room for one gang, so that a lost place would keep
// the next round from its end.
func testMembersMadeAnew(t *testing.T, s *gangScenarios) {
	t.Helper()
	for round := range 6 {
		pods := s.gang(fmt.Sprintf("anew-%d", round), 4, nil)
		s.create(t, pods...)
		time.Sleep(time.Duration(round) * 4 * time.Millisecond) // into the attempt
		victim := pods[round%len(pods)]
		before := s.get(t, victim.Name).Spec.NodeName
		s.drop(t, victim.Name)
		start := time.Now()
		s.boundAnew(t, s.gang(fmt.Sprintf("anew-%d", round), 4, nil)[round%len(pods)])
		s.wantApart(t, pods)
		t.Logf("round %d: %s was on %q when it was deleted; all four are bound %d ms later", round, victim.Name, before, time.Since(start).Milliseconds())
		for _, pod := range pods {
			s.drop(t, pod.Name)
		}
	}
}

// boundAnew recreates a pod that was deleted a moment ago, and waits until it has a node. The API server
// may delete it again, once, and then it is created a second time, as its controller would: a write to
// the old pod during its deletion ends with a deletion by name alone (Store.Update of k8s.io/apiserver
// 0.35.6). With four writers and no scheduler 86 of 1940 pods were lost so.
func (s *gangScenarios) boundAnew(t *testing.T, pod *v1.Pod) {
	t.Helper()
	s.create(t, pod)
	pods, lost := s.client.CoreV1().Pods(metav1.NamespaceDefault), false
	testkit.Eventually(t, waitLimit, "pod "+pod.Name+" that was made anew is bound", func(ctx context.Context) (bool, string) {
		got, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && !lost {
			lost = true
			got, err = pods.Create(ctx, pod, metav1.CreateOptions{})
		}
		if err != nil {
			return false, err.Error()
		}
		return got.Spec.NodeName != "", fmt.Sprintf("%+v", got.Status.Conditions)
	})
	if lost {
		t.Logf("%s was deleted with the pod before it, and made once more", pod.Name)
	}
}

// testReplacedBesideSucceeded makes one member succeed, and deletes another.
func testReplacedBesideSucceeded(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("done", 4, nil)
	s.create(t, pods...)
	s.wantApart(t, pods)
	s.succeed(t, pods[3].Name)
	s.drop(t, pods[2].Name)
	s.create(t, s.gang("done", 4, nil)[2])
	took := s.wantApart(t, pods[:3])
	t.Logf("expected: the replacement is bound; got: after %d ms", took.Milliseconds())
}

// testEarlierRun recreates a gang while the pods of its earlier run still exist.
func testEarlierRun(t *testing.T, s *gangScenarios) {
	t.Helper()
	before := s.gang("again", 4, nil)
	s.create(t, before...)
	s.wantApart(t, before)
	for _, pod := range before {
		s.succeed(t, pod.Name)
	}
	pods := s.gang("again", 4, nil)
	for _, pod := range pods {
		pod.Name += "-second"
	}
	s.create(t, pods[0])
	s.wantGangRefused(t, pods[:1], "1 of 4 members")
	s.create(t, pods[1:]...)
	took := s.wantApart(t, pods)
	t.Logf("expected: the first waits, then all are bound; got: after %d ms", took.Milliseconds())
}

// succeed sets a pod's phase to Succeeded, as kubelet would.
func (s *gangScenarios) succeed(t *testing.T, name string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"status":{"phase":"Succeeded","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":0,"finishedAt":%q}}}]}}`,
		time.Now().UTC().Format(time.RFC3339))
	_, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

const gate = "example.com/quota"

func gated(pod *v1.Pod) { pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: gate}} }

// ungate removes the gates of a pod.
func (s *gangScenarios) ungate(t *testing.T, name string) {
	t.Helper()
	body := []byte(`{"spec":{"schedulingGates":null}}`)
	if _, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testGated gates the planning member of a gang that needs all members.
func testGated(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("gated", 4, nil)
	gated(pods[0])
	s.create(t, pods...)
	s.wantGangRefused(t, pods[1:], "3 of 4 members may be scheduled")
	s.wantNoHold(t, pods)
	s.ungate(t, pods[0].Name)
	took := s.wantApart(t, pods)
	t.Logf("expected: all bound without the gate; got: after %d ms", took.Milliseconds())
}

// testSurplusGated gates the planning member of a gang that can start without it.
func testSurplusGated(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("gated", 4, notes{gangrequest.GangSizeKey: "3"})
	gated(pods[0])
	s.create(t, pods...)
	took := s.wantApart(t, pods[1:])
	t.Logf("expected: three bound; got: after %d ms", took.Milliseconds())
	s.wantNoHold(t, pods[:1])
	s.ungate(t, pods[0].Name)
	took = s.wantApart(t, pods)
	t.Logf("expected: the fourth without the gate; got: after %d ms", took.Milliseconds())
}

// testTwoProfilesOfGangs has members of two profiles of the scheduler, the first of which plans.
func testTwoProfilesOfGangs(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("mixed", 4, nil)
	pods[0].Spec.SchedulerName, pods[2].Spec.SchedulerName = otherGangProfile, otherGangProfile
	s.create(t, pods...)
	took := s.wantApart(t, pods)
	t.Logf("expected: all bound; got: after %d ms", took.Milliseconds())
}

// testMembersChange changes labels of all members repeatedly, which makes the queue drop their
// nominations, from before the gang is complete until it is bound.
func testMembersChange(t *testing.T, s *gangScenarios) {
	t.Helper()
	for round := range 4 {
		pods := s.gang(fmt.Sprintf("changing-%d", round), 4, nil)
		s.create(t, pods[:3]...)
		ctx, stop := context.WithCancel(t.Context())
		var patches sync.WaitGroup
		counts := make([]int, len(pods))
		for i, pod := range pods {
			patches.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					body := fmt.Appendf(nil, `{"metadata":{"labels":{"example.com/change":"%d"}}}`, n)
					if _, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{}); err == nil {
						counts[i]++
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		s.create(t, pods[3])
		took := s.wantApart(t, pods)
		stop()
		patches.Wait()
		t.Logf("round %d: all four are bound after %d ms, with %v changes meanwhile", round, took.Milliseconds(), counts)
		for _, pod := range pods {
			s.drop(t, pod.Name)
		}
	}
}

// raiseToFour raises a group's minimum.
func (s *gangScenarios) raiseToFour(t *testing.T, group string) {
	t.Helper()
	body := []byte(`{"spec":{"minMember":4}}`)
	if _, err := s.groups.Patch(t.Context(), group, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testMinimumRaised raises the minimum of a gang that waits for room, and then frees room.
func testMinimumRaised(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods, group := s.grouped("raised", 4), fmt.Sprintf("s%d-raised", s.number)
	makeGroup(t, s.groups, group, 3, nil)
	s.create(t, pods[:3]...)
	s.wantGangRefused(t, pods[:3], "2 of 3")
	s.raiseToFour(t, group)
	s.wantGangRefused(t, pods[:3], "3 of 4 members")
	s.empty(t, 2)
	s.empty(t, 3)
	s.wantNoHold(t, pods[:3])
	s.create(t, pods[3])
	took := s.wantApart(t, pods)
	t.Logf("expected: all four bound with the fourth; got: after %d ms", took.Milliseconds())
}

// testWholeMinimumRaised raises the minimum of a gang that is bound: the next member follows.
func testWholeMinimumRaised(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods, group := s.grouped("grown", 4), fmt.Sprintf("s%d-grown", s.number)
	makeGroup(t, s.groups, group, 3, nil)
	s.create(t, pods[:3]...)
	s.wantApart(t, pods[:3])
	s.raiseToFour(t, group)
	s.create(t, pods[3])
	took := s.wantApart(t, pods)
	t.Logf("expected: the fourth is bound, too; got: after %d ms", took.Milliseconds())
	if n := s.boundOf(t, pods); n != 4 {
		t.Errorf("%d of 4 are bound", n)
	}
}

// testGangOfBindings has the choice and the rank written with the Binding.
func testGangOfBindings(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("binding", 4, nil)
	for _, pod := range pods {
		pod.Spec.SchedulerName = bindingGangProfile
	}
	s.create(t, pods...)
	s.wantRacks(t, pods, []string{"rack-0", "rack-0", "rack-0", "rack-0"})
	for rank, pod := range pods {
		testkit.Eventually(t, waitLimit, "pod "+pod.Name+" has its rank and GPUs", func(context.Context) (bool, string) {
			got := s.get(t, pod.Name)
			c := choiceOf(t, got, s.graphs[got.Spec.NodeName])
			return c.set.Len() == 8 && got.Annotations[gangrequest.RankKey] == strconv.Itoa(rank), fmt.Sprint(got.Annotations)
		})
	}
	t.Logf("expected: ranks 0 to 3 with 8 GPUs each; got: that, and %q", s.placementOf(t, pods[0].Name).Quality)
}
