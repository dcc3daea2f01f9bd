// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNoLeader: NoLeader returns a reason where the Lease shows that no scheduler leads, and nowhere else.
func TestNoLeader(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	lease := func(name string, age time.Duration) coordinationv1.Lease {
		return coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "nvtopo-system", Name: name},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("pod-1_x"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(now.Add(-age))),
			},
		}
	}
	says := func(namespace, name string) *Profiles {
		return &Profiles{LeaderLease: &LeaderLease{Namespace: namespace, Name: name}}
	}
	released := lease(ShippedLease, time.Hour)
	released.Spec.HolderIdentity, released.Spec.LeaseDurationSeconds = new(""), new(int32(1))
	justReleased := *released.DeepCopy()
	justReleased.Spec.RenewTime = new(metav1.NewMicroTime(now.Add(-20 * time.Second)))
	long := lease(ShippedLease, 110*time.Second)
	long.Spec.LeaseDurationSeconds = new(int32(60))
	// written is a Lease whose leader's clock is behind by `behind`, and which the API server wrote `age`
	// ago.
	written := func(name string, age, behind time.Duration) coordinationv1.Lease {
		l := lease(name, age+behind)
		l.ManagedFields = []metav1.ManagedFieldsEntry{{
			Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.NewTime(now.Add(-age))), FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:renewTime":{}}}`)},
		}}
		return l
	}
	noHolder := lease(ShippedLease, 0)
	noHolder.Spec.HolderIdentity, noHolder.Spec.RenewTime = nil, nil
	const renewed = "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at "
	untimed := lease(ShippedLease, time.Hour)
	untimed.Spec.RenewTime = nil
	exporter := lease("exporter-n", 0)
	// nodes are the Leases of two nodes' programs, written that long ago.
	nodes := func(age time.Duration) (out []coordinationv1.Lease) {
		for _, name := range []string{"exporter-n", "agent-n", "exporter-m", "agent-m"} {
			out = append(out, written(name, age, 0))
		}
		return out
	}
	for name, tc := range map[string]struct {
		published *Profiles
		leases    []coordinationv1.Lease
		placed    time.Time
		gone      bool
		want      string
	}{
		"the Lease is renewed":                               {published: says("nvtopo-system", ShippedLease), leases: []coordinationv1.Lease{lease(ShippedLease, 2*time.Second)}},
		"clocks that are not compared may be a minute apart": {leases: []coordinationv1.Lease{lease(ShippedLease, 74*time.Second)}},
		"they are not more than that":                        {leases: []coordinationv1.Lease{lease(ShippedLease, 76*time.Second)}, want: renewed + "2026-11-30T11:58:44Z"},
		"by the API server's clock it has just expired":      {leases: append(nodes(time.Second), written(ShippedLease, 17*time.Second, 0)), want: renewed + "2026-11-30T11:59:43Z"},
		"by the API server's clock it has not":               {leases: append(nodes(time.Second), written(ShippedLease, 15*time.Second, 50*time.Second))},
		"the leader's clock is behind":                       {leases: append(nodes(time.Second), written(ShippedLease, 2*time.Second, time.Hour))},
		"the clock of who looks is a minute ahead":           {leases: append(nodes(61*time.Second), written(ShippedLease, 62*time.Second, 0))},
		"a node writes times to come":                        {leases: []coordinationv1.Lease{written(ShippedLease, 2*time.Second, 0), written("exporter-n", -time.Hour, 0), written("agent-n", -time.Hour, 0)}},
		"nothing else is written":                            {leases: []coordinationv1.Lease{written(ShippedLease, 76*time.Second, 0)}, want: renewed + "2026-11-30T11:58:44Z"},
		"the leader's clock is ahead":                        {leases: []coordinationv1.Lease{lease(ShippedLease, -time.Hour)}},
		"the Lease has expired":                              {published: says("nvtopo-system", ShippedLease), leases: []coordinationv1.Lease{exporter, lease(ShippedLease, 150*time.Second)}, want: "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-30T11:57:30Z"},
		"the shipped Lease has expired, and nobody says":     {leases: []coordinationv1.Lease{lease(ShippedLease, 150*time.Second)}, want: "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-30T11:57:30Z"},
		"the schedulers have published no Lease":             {published: &Profiles{}, leases: []coordinationv1.Lease{lease(ShippedLease, 5*time.Hour)}, want: "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-30T07:00:00Z"},
		"the leader gave its Lease up":                       {leases: []coordinationv1.Lease{released}, want: "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler has no holder, and was last renewed at 2026-11-30T11:00:00Z"},
		"the leader gave its Lease up a moment ago":          {leases: []coordinationv1.Lease{justReleased}, want: "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler has no holder, and was last renewed at 2026-11-30T11:59:40Z"},
		"a Lease that nobody has held":                       {leases: []coordinationv1.Lease{noHolder}, want: "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler has no holder"},
		"a Lease that lasts for longer":                      {leases: []coordinationv1.Lease{long}},
		"a Lease without a time":                             {leases: []coordinationv1.Lease{untimed}},
		"nobody says, and there is no such Lease":            {leases: []coordinationv1.Lease{exporter}},
		"they have published none, and there is none":        {published: &Profiles{}, leases: []coordinationv1.Lease{exporter}},
		"the Lease that there is to be is not there":         {published: says("nvtopo-system", ShippedLease), leases: []coordinationv1.Lease{exporter}, want: "no scheduler leads: there is no Lease nvtopo-system/nvtopo-scheduler"},
		"nothing of nvtopo is there":                         {gone: true, want: "no scheduler leads: nvtopo is not installed, or was taken out by nvtopo uninstall: none of its programs has a Lease, and no node a NodeGPUTopology"},
		"Leases are not known":                               {published: says("nvtopo-system", ShippedLease)},
		"Leases of the namespace are not known":              {published: says("gpus", ShippedLease), leases: []coordinationv1.Lease{exporter}},
		"the scheduler takes part in no election":            {published: says("nvtopo-system", ""), leases: []coordinationv1.Lease{lease(ShippedLease, time.Hour)}},
		"the scheduler has another Lease":                    {published: says("nvtopo-system", "ours"), leases: []coordinationv1.Lease{lease(ShippedLease, time.Hour), lease("ours", time.Second)}},
		"the other Lease has expired":                        {published: says("nvtopo-system", "ours"), leases: []coordinationv1.Lease{lease(ShippedLease, time.Second), lease("ours", 5*time.Minute)}, want: "no scheduler leads: Lease nvtopo-system/ours was last renewed at 2026-11-30T11:55:00Z"},
		"a Lease of the name in another namespace":           {published: says("gpus", ShippedLease), leases: []coordinationv1.Lease{lease(ShippedLease, time.Hour)}},
		"a scheduler places pods without the Lease":          {leases: []coordinationv1.Lease{lease(ShippedLease, time.Hour)}, placed: now.Add(-time.Minute)},
		"the leader placed a pod just before it ended":       {leases: []coordinationv1.Lease{lease(ShippedLease, time.Hour)}, placed: now.Add(-time.Hour + 9*time.Second), want: "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-30T11:00:00Z"},
		"the leader placed a pod long before it was ended":   {leases: []coordinationv1.Lease{lease(ShippedLease, time.Hour)}, placed: now.Add(-2 * time.Hour), want: "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-30T11:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Election{Published: tc.published, Leases: tc.leases, Placed: tc.placed, Now: now, Gone: tc.gone}
			if _, got, _ := e.NoLeader(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestLastPlaced: only pods of the given schedulers that have a node are used.
func TestLastPlaced(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	pod := func(scheduler, node string, status v1.ConditionStatus, minute int) v1.Pod {
		return v1.Pod{Spec: v1.PodSpec{SchedulerName: scheduler, NodeName: node}, Status: v1.PodStatus{Conditions: []v1.PodCondition{
			{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(time.Hour))},
			{Type: v1.PodScheduled, Status: status, LastTransitionTime: metav1.NewTime(start.Add(time.Duration(minute) * time.Minute))},
		}}}
	}
	got := LastPlaced([]v1.Pod{
		pod("ours", "n", v1.ConditionTrue, 1), pod("ours", "n", v1.ConditionTrue, 3), pod("ours", "n", v1.ConditionTrue, 2),
		pod("ours", "", v1.ConditionFalse, 4), pod("other", "n", v1.ConditionTrue, 5),
		{Spec: v1.PodSpec{SchedulerName: "ours", NodeName: "static"}},
	}, func(name string) bool { return name == "ours" })
	if want := start.Add(3 * time.Minute); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
