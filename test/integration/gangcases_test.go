// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// acceptedFlows returns cases of the table of acceptance, by their numbers in it.
func acceptedFlows() []flow {
	noRack := freeRacks{{{8, 8, 8, 0}, {8, 8, 8, 0}}} // has room for four
	return []flow{
		{"11 a gang that waits holds nothing", freeRacks{{{8, 8, 8, 8}}}, testHoldsNothing},
		{"12 two gangs and room for one", freeRacks{{{8, 8, 8, 8, 8, 8, 8, 8}}}, testTwoGangs},
		{"13 members that are not there yet", freeRacks{{{8, 8, 8, 8}}}, testIncomplete},
		{"13 a level that there is not", freeRacks{{{8, 8}}}, testUnknownLevel},
		{"14 members above the minimum", freeRacks{{{8, 8, 8, 8, 8}}}, testSurplus},
		{"17 a rack becomes free in time", noRack, testPatienceRewarded},
		{"17 no rack becomes free in time", noRack, testPatienceInVain},
	}
}

// testHoldsNothing checks that pods can take every node beside a gang that is one node short.
func testHoldsNothing(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("five", 5, nil)
	s.create(t, pods...)
	s.wantGangRefused(t, pods, "4 of 5")
	s.wantNoHold(t, pods)
	for i := range 4 {
		single, start := s.single(fmt.Sprintf("single-%d", i)), time.Now()
		s.create(t, single)
		node := s.bound(t, single.Name).Spec.NodeName
		t.Logf("expected: bound at once; got: on %s after %d ms", node, time.Since(start).Milliseconds())
	}
	s.wantNoHold(t, pods)
}

// testTwoGangs creates two gangs member by member in turn.
func testTwoGangs(t *testing.T, s *gangScenarios) {
	t.Helper()
	gangs := [][]*v1.Pod{s.gang("a", 5, nil), s.gang("b", 5, nil)}
	for i := range 5 {
		s.create(t, gangs[0][i], gangs[1][i])
	}
	first := 0
	testkit.Eventually(t, waitLimit, "one gang is whole", func(context.Context) (bool, string) {
		a, b := s.boundOf(t, gangs[0]), s.boundOf(t, gangs[1])
		if b == 5 {
			first = 1
		}
		return a == 5 || b == 5, fmt.Sprintf("%d and %d of 5 are bound", a, b)
	})
	other := gangs[1-first]
	s.wantGangRefused(t, other, " of 5")
	t.Logf("expected 5 and 0 bound; got %d and %d", s.boundOf(t, gangs[first]), s.boundOf(t, other))
	s.wantNoHold(t, other)
	s.wantApart(t, gangs[first])
	for _, pod := range gangs[first] {
		s.drop(t, pod.Name)
	}
	took := s.wantApart(t, other)
	t.Logf("expected: then the other; got: its 5 are bound after %d ms", took.Milliseconds())
}

// testIncomplete makes three of four members wait, and counts their scheduling cycles.
func testIncomplete(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("four", 4, nil)
	for _, pod := range pods {
		pod.Spec.SchedulerName = countedGangProfile
	}
	cycles := func() float64 {
		return s.scrape(t, s.scheduler).sum("scheduler_schedule_attempts_total", `profile="`+countedGangProfile+`"`)
	}
	s.create(t, pods[:3]...)
	s.wantGangRefused(t, pods[:3], "3 of 4")
	for _, pod := range pods[:3] { // each, since users look at any
		s.wantEvent(t, pod.Name, "GangWaiting", " of 4 members")
	}
	s.wantNoHold(t, pods[:3])
	got := cycles()
	t.Logf("expected no cycle; got %.0f", got)
	if got != 0 {
		t.Errorf("%.0f cycles of members that cannot start", got)
	}
	s.create(t, pods[3])
	took := s.wantApart(t, pods)
	t.Logf("expected: all bound with the fourth; got: after %d ms and %.0f cycles", took.Milliseconds(), cycles())
}

// testUnknownLevel has the first of two members request an unknown level, beside a misspelled key: it
// reports both before the second is created.
func testUnknownLevel(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("racks", 2, notes{gangrequest.RequiredKey: "racks", "nvtopo.dev/min-lnk": "NV4"})
	s.create(t, pods[0])
	const fault = `metadata.annotations[nvtopo.dev/required-topology]: the fabric has no level "racks"; it has spine, rack; correct the value`
	s.wantGangRefused(t, pods[:1], "gang: 1 of 2 members; Pod default/"+pods[0].Name+": "+fault)
	s.wantEvent(t, pods[0].Name, "GangWaiting", fault)
	s.wantEvent(t, pods[0].Name, "KeyIgnored", "nearest is nvtopo.dev/min-link")
	s.create(t, pods[1])
	s.wantGangRefused(t, pods, "cannot be placed: Pod default/"+pods[0].Name+": "+fault)
	for _, pod := range pods {
		s.wantEvent(t, pod.Name, "GangWaiting", fault)
	}
}

// testSurplus has six members of which four must start together, and room for five.
func testSurplus(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.grouped("six", 6)
	makeGroup(t, s.groups, fmt.Sprintf("s%d-six", s.number), 4, nil)
	s.create(t, pods...)
	var last []*v1.Pod
	testkit.Eventually(t, waitLimit, "five members are bound", func(context.Context) (bool, string) {
		last = nil
		for _, pod := range pods {
			if s.get(t, pod.Name).Spec.NodeName == "" {
				last = append(last, pod)
			}
		}
		return len(last) <= 1, fmt.Sprintf("%d wait", len(last))
	})
	if len(last) != 1 {
		t.Fatal("six members are bound on five nodes")
	}
	s.wantGangRefused(t, last, "5 of 6")
	s.wantNoHold(t, last)
	t.Logf("expected 5 bound, the sixth waits alone; got %d, %s waits: %s", s.boundOf(t, pods), last[0].Name, refusal(s.get(t, last[0].Name)))
}

// testPatienceRewarded frees the fourth node of a rack while a gang waits for a better level.
func testPatienceRewarded(t *testing.T, s *gangScenarios) {
	t.Helper()
	pods := s.gang("patient", 4, patience(5*time.Minute))
	s.create(t, pods...)
	s.wantGangRefused(t, pods, "for a better all-reduce than ")
	s.wantNoHold(t, pods)
	s.empty(t, 3)
	s.wantRacks(t, pods, []string{"rack-0", "rack-0", "rack-0", "rack-0"})
}

// testPatienceInVain frees nothing.
func testPatienceInVain(t *testing.T, s *gangScenarios) {
	t.Helper()
	const patient = 8 * time.Second
	pods := s.gang("patient", 4, patience(patient))
	s.create(t, pods[:3]...)
	start := time.Now() // before the gang is complete
	s.create(t, pods[3])
	s.wantRacks(t, pods, []string{"rack-0", "rack-0", "rack-0", "rack-1"})
	took := time.Since(start)
	quality := s.placementOf(t, pods[0].Name).Quality
	t.Logf("expected %q after %v; got %q after %d ms", "acceptable (adjacent racks)", patient, quality, took.Milliseconds())
	// A slow machine only takes longer. The members' message meanwhile is checked in testPatienceRewarded:
	// here it may be gone before it is read.
	if took < patient || quality != "acceptable (adjacent racks)" {
		t.Errorf("%s after %v", quality, took)
	}
}
