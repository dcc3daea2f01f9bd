// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// settler records the requested settlements.
type settler struct {
	idle
	asked []*Settlement
	leads func() bool // according to the Lease; nil: never
}

func (s *settler) MayLead() bool { return s.leads != nil && s.leads() }

func (s *settler) Settle(x *Settlement) { s.asked = append(s.asked, x) }

const (
	notWhole = `{"attempt":1,"whole":false}`
	isWhole  = `{"attempt":1,"whole":true}`
)

func testGroup(minimum int32, state string) *schedulingv1alpha1.PodGroup {
	group := &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "g", Annotations: map[string]string{}},
		Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: minimum},
	}
	if state != "" {
		group.Annotations[gangrequest.StateKey] = state
	}
	return group
}

// groupMembers returns n members, the first of them with a node.
func groupMembers(n, bound int) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pod := schedtest.Pod(fmt.Sprintf("g-%d", i)).Namespace("ns").Scheduler(testProfile).Label(schedulingv1alpha1.PodGroupLabel, "g")
		if i < bound {
			pod.Node("n")
		}
		pods[i] = pod.Obj()
	}
	return pods
}

// TestGangSettling checks after how many seconds a gang is first checked, and whether its bound members
// are to be evicted then.
func TestGangSettling(t *testing.T) {
	t.Parallel()
	const never = -1
	tests := map[string]struct {
		state   string
		bound   int // of 3
		timeout time.Duration
		own     time.Duration // the PodGroup's scheduleTimeoutSeconds
		standby bool          // no cycle began here
		lease   bool          // this process leads, according to the Lease
		change  func(pods []*v1.Pod)

		want  int // seconds
		evict bool
	}{
		"the rest does not follow":                {state: notWhole, bound: 2, timeout: time.Minute, want: 60, evict: true},
		"how long members wait is another time":   {state: notWhole, bound: 2, timeout: time.Minute, own: 90 * time.Second, want: 60, evict: true},
		"the write that it is whole was lost":     {state: notWhole, bound: 3, timeout: time.Minute, want: 10},
		"likewise, and nobody is to be evicted":   {state: notWhole, bound: 3, want: 10},
		"one of them ended":                       {state: notWhole, bound: 3, timeout: time.Minute, change: func(p []*v1.Pod) { p[0].Status.Phase = v1.PodSucceeded }, want: 10},
		"nobody is to be evicted":                 {state: notWhole, bound: 2, want: never},
		"nobody is bound":                         {state: notWhole, timeout: time.Minute, want: never},
		"those who are bound are being deleted":   {state: notWhole, bound: 1, timeout: time.Minute, change: func(p []*v1.Pod) { p[0].DeletionTimestamp = new(metav1.Now()) }, want: never},
		"it was whole, and lost a member":         {state: isWhole, bound: 2, timeout: time.Minute, want: never},
		"it says nothing":                         {bound: 2, timeout: time.Minute, want: never},
		"what it says cannot be read":             {state: `{"whole":false}`, bound: 2, timeout: time.Minute, want: never},
		"another process leads":                   {state: notWhole, bound: 2, timeout: time.Minute, standby: true, want: never},
		"no cycle began, and the write was lost":  {state: notWhole, bound: 3, timeout: time.Minute, standby: true, lease: true, want: 10},
		"no cycle began, and the rest is missing": {state: notWhole, bound: 2, timeout: time.Minute, standby: true, lease: true, want: 60, evict: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			s := &settler{leads: func() bool { return tc.lease }}
			g := New(clk, Config{ScheduleTimeout: tc.timeout}, s)
			g.Serve(testProfile)
			group := testGroup(3, tc.state)
			if tc.own > 0 {
				group.Spec.ScheduleTimeoutSeconds = new(int32(tc.own / time.Second))
			}
			g.SetGroup(group)
			pods := groupMembers(3, tc.bound)
			if tc.change != nil {
				tc.change(pods)
			}
			for _, pod := range pods {
				g.SetPod(pod)
			}
			if !tc.standby {
				g.Begin(&v1.Pod{})
			}
			got := never
			for second := 0; second <= 120 && got == never; second++ {
				clk.SetTime(time.Unix(int64(second), 0))
				g.tick()
				if len(s.asked) > 0 {
					got = second
				}
			}
			if got != tc.want || got != never && s.asked[0].Evict != tc.evict {
				t.Errorf("looked at after %d s, want %d (-1: never): %+v, want evictions: %t", got, tc.want, s.asked, tc.evict)
			}
		})
	}
}

// TestRollBackTimer: the timer of a roll-back begins when the process leads, and again with its first
// cycle, from which on it may have room for the rest. No cycle has to come: perhaps no pod waits.
func TestRollBackTimer(t *testing.T) {
	t.Parallel()
	const never = -1
	tests := map[string]struct {
		leads, cycle int64 // seconds
		want         int64
	}{
		"no cycle comes":                   {leads: 20, cycle: never, want: 80},
		"a cycle comes":                    {leads: 20, cycle: 50, want: 110},
		"a cycle comes before the Lease":   {leads: 50, cycle: 20, want: 80},
		"no cycle comes, and nobody leads": {leads: never, cycle: never, want: never},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			s := &settler{leads: func() bool { return tc.leads != never && clk.Now().Unix() >= tc.leads }}
			g := New(clk, Config{ScheduleTimeout: time.Minute}, s)
			g.Serve(testProfile)
			g.SetGroup(testGroup(3, notWhole))
			for _, pod := range groupMembers(3, 2) {
				g.SetPod(pod)
			}
			got := int64(never)
			for second := int64(0); second < 200 && got == never; second++ {
				clk.SetTime(time.Unix(second, 0))
				if second == tc.cycle {
					g.Begin(&v1.Pod{})
				}
				if g.tick(); len(s.asked) > 0 {
					got = second
				}
			}
			if got != tc.want {
				t.Errorf("settled after %d s, want %d (-1: never)", got, tc.want)
			}
		})
	}
}

// TestDeathAfterWhole: the write that a gang is whole fails for as long as the API server refuses it. A
// member that dies after that gives the others the whole time to be joined by another one.
func TestDeathAfterWhole(t *testing.T) {
	t.Parallel()
	const dies, timeout = 300, 60 // seconds
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	s := &settler{}
	g := New(clk, Config{ScheduleTimeout: timeout * time.Second}, s)
	g.Serve(testProfile)
	g.SetGroup(testGroup(3, notWhole))
	pods := groupMembers(3, 3)
	for _, pod := range pods {
		g.SetPod(pod)
	}
	g.Begin(&v1.Pod{})
	evicted := 0
	for second := 1; second <= dies+2*timeout && evicted == 0; second++ {
		clk.SetTime(time.Unix(int64(second), 0))
		if second == dies {
			g.DeletePod(pods[2])
		}
		g.tick()
		for _, x := range s.asked {
			if x.Evict {
				evicted = second
			}
			g.Settled(x, 0)
		}
		s.asked = nil
	}
	if evicted < dies+timeout || evicted > dies+timeout+int(settleEvery/time.Second) {
		t.Errorf("the other members are evicted %d s after the start, want %d s after the death at %d s", evicted, timeout, dies)
	}
}

// TestRollBackAttempts: no attempt begins during a roll-back. The places of evicted members must not be
// given to the gang in which they are still bound.
func TestRollBackAttempts(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	s := &settler{}
	g := New(clk, Config{ScheduleTimeout: time.Minute}, s)
	g.Serve(testProfile)
	g.SetGroup(testGroup(3, notWhole))
	pods := groupMembers(3, 2)
	for _, pod := range pods {
		g.SetPod(pod)
	}
	turn, _ := g.Begin(pods[2])
	if turn.Why != "" {
		t.Fatalf("the last member may not begin: %s", turn.Why)
	}
	g.tick()
	clk.SetTime(time.Unix(60, 0))
	g.tick()
	if len(s.asked) != 1 {
		t.Fatalf("%d settlements after a minute, want 1", len(s.asked))
	}
	if g.Hold(&turn, pods[2], nil) {
		t.Error("a plan that was made before is held")
	}
	if turn, _ := g.Begin(pods[2]); turn.Why == "" || g.Gate(pods[2]) == "" {
		t.Error("a member may begin")
	}
	clk.SetTime(time.Unix(600, 0))
	g.tick()
	if len(s.asked) != 1 {
		t.Errorf("%d settlements at a time", len(s.asked))
	}
	g.Settled(s.asked[0], 2)
	if why := g.Gate(pods[2]); why != "" {
		t.Errorf("after the roll-back the member may not begin: %s", why)
	}
	g.tick()
	if len(s.asked) != 2 {
		t.Errorf("%d settlements, want a second one for those that a disruption budget kept", len(s.asked))
	}
}

// TestJudge checks the Verdict on a gang from the API server's objects. The informers saw two of three
// members bound.
func TestJudge(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		group  *schedulingv1alpha1.PodGroup
		bound  int
		change func(group *schedulingv1alpha1.PodGroup, pods []*v1.Pod)
		late   bool // not yet the time to evict

		want  []string
		whole bool
	}{
		"it is as the informers have it":                 {group: testGroup(3, notWhole), bound: 2, want: []string{"g-0", "g-1"}},
		"one is being deleted":                           {group: testGroup(3, notWhole), bound: 2, change: func(_ *schedulingv1alpha1.PodGroup, p []*v1.Pod) { p[0].DeletionTimestamp = new(metav1.Now()) }, want: []string{"g-1"}},
		"one has ended":                                  {group: testGroup(3, notWhole), bound: 2, change: func(_ *schedulingv1alpha1.PodGroup, p []*v1.Pod) { p[0].Status.Phase = v1.PodSucceeded }, want: []string{"g-1"}},
		"one is another scheduler's":                     {group: testGroup(3, notWhole), bound: 2, change: func(_ *schedulingv1alpha1.PodGroup, p []*v1.Pod) { p[0].Spec.SchedulerName = "other" }, want: []string{"g-1"}},
		"one is of another gang":                         {group: testGroup(3, notWhole), bound: 2, change: func(_ *schedulingv1alpha1.PodGroup, p []*v1.Pod) { p[0].Labels = nil }, want: []string{"g-1"}},
		"the last one is bound by now":                   {group: testGroup(3, notWhole), bound: 3, whole: true},
		"likewise, and one has ended":                    {group: testGroup(3, notWhole), bound: 3, change: func(_ *schedulingv1alpha1.PodGroup, p []*v1.Pod) { p[0].Status.Phase = v1.PodSucceeded }, whole: true},
		"the minimum was lowered":                        {group: testGroup(2, notWhole), bound: 2, whole: true},
		"it is whole by now":                             {group: testGroup(3, isWhole), bound: 2},
		"its state is gone":                              {group: testGroup(3, ""), bound: 2},
		"its state cannot be read":                       {group: testGroup(3, `{"attempt":1,"whole": false}`), bound: 2},
		"its group is gone":                              {bound: 2},
		"its group was made anew":                        {group: testGroup(3, notWhole), bound: 2, change: func(g *schedulingv1alpha1.PodGroup, _ []*v1.Pod) { g.UID = "other" }},
		"what it asks for cannot be read":                {group: testGroup(-1, notWhole), bound: 2},
		"nobody is bound":                                {group: testGroup(3, notWhole)},
		"only the write that it is whole is looked for":  {group: testGroup(3, notWhole), bound: 2, late: true},
		"likewise, and all are bound":                    {group: testGroup(3, notWhole), bound: 3, late: true, whole: true},
		"the last one failed, and so did the whole gang": {group: testGroup(3, notWhole), bound: 0, change: func(_ *schedulingv1alpha1.PodGroup, p []*v1.Pod) { p[0].Status.Phase = v1.PodFailed }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := New(clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Config{}, &settler{})
			g.Serve(testProfile)
			pods := groupMembers(3, tc.bound)
			group := tc.group
			if tc.change != nil {
				if group != nil {
					group = group.DeepCopy()
				}
				tc.change(group, pods)
			}
			s := &Settlement{Key: gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: "ns", Name: "g"}, Group: testGroup(3, notWhole), Evict: !tc.late}
			v := g.Judge(s, group, pods)
			var got []string
			for _, pod := range v.Evict {
				got = append(got, pod.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || v.Whole != tc.whole {
				t.Errorf("whole: %t, want %t; evicted (-want +got):\n%s", v.Whole, tc.whole, diff)
			}
			if !v.Whole && len(v.Evict) == 0 && v.Reason == "" {
				t.Error("nothing is to be done, and nothing says why")
			}
		})
	}
}

// TestClaimEnd: a claim ends when the gang is settled. The claim of a partly bound gang ends in the very
// round in which its bound members are to be evicted. A settlement lost then would keep the gang out for
// ever.
func TestClaimEnd(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	s := &settler{}
	g := New(clk, Config{ScheduleTimeout: time.Minute}, s)
	g.Serve(testProfile)
	g.SetGroup(testGroup(3, notWhole))
	pods := groupMembers(3, 2)
	for _, pod := range pods {
		g.SetPod(pod)
	}
	turn, _ := g.Begin(pods[2])
	if turn.Why != "" {
		t.Fatal(turn.Why)
	}
	g.tick() // the minute begins
	end := clk.Now().Add(time.Minute)
	if !g.Claim(&turn, &Claim{Places: []Located{{pods[2], "n"}}, Until: end}) {
		t.Fatal("the place of the last member is not held")
	}
	clk.SetTime(end.Add(-time.Second))
	g.tick()
	clk.SetTime(end)
	g.tick()
	if len(s.asked) != 1 || !s.asked[0].Evict {
		t.Fatalf("the gang is looked at %d times, want once, to evict", len(s.asked))
	}
	g.Settled(s.asked[0], 0)
	if why := g.Gate(pods[2]); why != "" {
		t.Errorf("after the look the last member is kept out of the queue: %s", why)
	}
}
