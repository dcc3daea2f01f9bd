// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// minute returns the time n minutes into the tests' day.
func minute(n int) time.Time {
	return time.Date(2026, 11, 24, 0, n, 0, 0, time.UTC)
}

func stamp(n int) metav1.Time { return metav1.NewTime(minute(n)) }

// aPod returns a running pod with 4 GPUs that was created at minute 0 and bound at minute 10.
func aPod(change ...func(*v1.Pod)) *v1.Pod {
	return testobj.Pod("trainer").Namespace("team-a").UID("u1").Created(minute(0)).Finalizer(names.FinalizerMetering).
		Node("n1").Request(v1.ResourceCPU, "1").Request("nvidia.com/gpu", "4").Phase(v1.PodRunning).Scheduled(minute(10)).
		With(func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
		}).With(change...).Obj()
}

func finished(phase v1.PodPhase, at int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Phase = phase
		p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: stamp(at)}}}}
	}
}

// neverSaid makes a pod one that failed without a time from kubelet: kubelet refused the pod, for
// example.
func neverSaid(p *v1.Pod) { p.Status.Phase, p.Status.ContainerStatuses = v1.PodFailed, nil }

func deleted(at int, grace int64) func(*v1.Pod) {
	return func(p *v1.Pod) {
		when := stamp(at)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &when, &grace
	}
}

func unbound(p *v1.Pod) {
	p.Spec.NodeName, p.Status.Phase, p.Status.Conditions = "", v1.PodPending, nil
}

// notScheduled sets the condition that a scheduler writes which does not know of the pod's binding.
func notScheduled(at int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, LastTransitionTime: stamp(at)}}
	}
}

func began(at int) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.StartTime = new(stamp(at)) }
}

func free(p *v1.Pod) { p.Finalizers = nil }

func aPool(change ...func(*v1alpha1.ComputePool)) *v1alpha1.ComputePool {
	p := &v1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: "training"}, Spec: v1alpha1.ComputePoolSpec{PoolType: v1alpha1.PoolGPU}}
	for _, f := range change {
		f(p)
	}
	return p
}

func joinedAt(n int) place {
	return place{tenant: "team-a", pool: aPool(), joined: func() time.Time { return minute(n) }}
}

func aRecord(start int) v1alpha1.UsageRecord {
	return v1alpha1.UsageRecord{
		ObjectMeta: metav1.ObjectMeta{Name: "u1", Namespace: "team-a", CreationTimestamp: stamp(start)},
		Spec:       v1alpha1.UsageRecordSpec{Pod: "trainer", PodUID: "u1", Start: stamp(start)},
	}
}

// restored sets the minute at which a backup brought a record back; its annotation keeps the first one.
func restored(r v1alpha1.UsageRecord, at int) v1alpha1.UsageRecord {
	r.Annotations = map[string]string{names.AnnotationRecorded: r.CreationTimestamp.UTC().Format(time.RFC3339)}
	r.CreationTimestamp = stamp(at)
	return r
}

// aRest returns the record of the time from the minute at which another record ended too early.
func aRest(start int) v1alpha1.UsageRecord {
	r := aRecord(start)
	r.Name = names.RestRecord(r.Name, minute(start))
	return r
}

func ended(r v1alpha1.UsageRecord, at int) v1alpha1.UsageRecord {
	when := stamp(at)
	r.Status.End = &when
	return r
}

func guessed(r v1alpha1.UsageRecord, at int) v1alpha1.UsageRecord {
	r = ended(r, at)
	r.Status.Estimated = true
	return r
}

func TestDecide(t *testing.T) {
	team := place{tenant: "team-a", pool: aPool()}
	type want struct {
		Start     []int // minutes of the records to make
		End       int   // minute; 0 for none
		Estimated bool
		Ends      int // records beside one that end
		Confirm   int // records that go on though they were restored
		Release   bool
	}
	for name, tc := range map[string]struct {
		view view
		want want
	}{
		"a pod that was bound": {view{pod: aPod(), place: team}, want{Start: []int{10}}},
		"a pod that waits":     {view{pod: aPod(unbound), place: place{}}, want{}},
		"a pod that was deleted while it waited": {
			view{pod: aPod(unbound, deleted(20, 0))}, want{Release: true},
		},
		"the scheduler had no answer to its binding, and wrote then that it is not scheduled": {
			view{pod: aPod(notScheduled(30), began(11), finished(v1.PodSucceeded, 25)), place: team}, want{Start: []int{11}, End: 25, Release: true},
		},
		"likewise, and its kubelet's clock is ahead": {view{pod: aPod(notScheduled(30), began(50)), place: team}, want{Start: []int{30}}},
		"likewise, or it is behind":                  {view{pod: aPod(notScheduled(30), began(-5)), place: team}, want{Start: []int{0}}},
		"likewise, and kubelet has not begun":        {view{pod: aPod(notScheduled(30)), place: team}, want{Start: []int{30}}},
		"it was bound, and kubelet began later":      {view{pod: aPod(began(12)), place: team}, want{Start: []int{10}}},
		"it was made with its node": {
			view{pod: aPod(func(p *v1.Pod) { p.Status.Conditions = nil }), place: team}, want{Start: []int{0}},
		},
		"its record is there": {view{pod: aPod(), place: team, records: []v1alpha1.UsageRecord{aRecord(10)}}, want{}},
		"it has ended":        {view{pod: aPod(finished(v1.PodSucceeded, 40)), place: team, records: []v1alpha1.UsageRecord{aRecord(10)}}, want{End: 40, Release: true}},
		"it has ended before its record was made": {
			view{pod: aPod(finished(v1.PodFailed, 40)), place: team}, want{Start: []int{10}, End: 40, Release: true},
		},
		"its end is written, its finalizer is not gone": {
			view{pod: aPod(finished(v1.PodFailed, 40)), place: team, records: []v1alpha1.UsageRecord{ended(aRecord(10), 40)}}, want{Release: true},
		},
		"it has ended and everything is written": {
			view{pod: aPod(finished(v1.PodFailed, 40), free), place: team, records: []v1alpha1.UsageRecord{ended(aRecord(10), 40)}}, want{},
		},
		"it is terminating and still runs": {
			view{pod: aPod(deleted(50, 600)), place: team, records: []v1alpha1.UsageRecord{aRecord(10)}}, want{},
		},
		"it was deleted by force: the delete": {
			view{pod: aPod(deleted(50, 0)), place: team, records: []v1alpha1.UsageRecord{aRecord(10)}}, want{End: 50, Release: true},
		},
		"its node was lost and it was given up": {
			view{pod: aPod(func(p *v1.Pod) {
				p.Status.Phase = v1.PodFailed
				p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: stamp(45)})
			}), place: team, records: []v1alpha1.UsageRecord{aRecord(10)}}, want{End: 45, Release: true},
		},
		"it failed and nobody says when": {
			view{pod: aPod(neverSaid), place: team, records: []v1alpha1.UsageRecord{aRecord(10)}},
			want{End: 100, Estimated: true, Release: true},
		},
		"a node's clock is ahead: now": {
			view{pod: aPod(finished(v1.PodSucceeded, 1000)), place: team, records: []v1alpha1.UsageRecord{aRecord(10)}}, want{End: 100, Release: true},
		},
		"a node's clock is behind: the start": {
			view{pod: aPod(finished(v1.PodSucceeded, 5)), place: team, records: []v1alpha1.UsageRecord{aRecord(10)}}, want{End: 10, Release: true},
		},
		"it went and was seen to go": {
			view{pod: aPod(free), gone: end{at: minute(60)}, place: team, records: []v1alpha1.UsageRecord{aRecord(10)}}, want{End: 60},
		},
		"it went before its record was made": {
			view{pod: aPod(free), gone: end{at: minute(60)}, place: team}, want{Start: []int{10}, End: 60},
		},
		"it went while nobody looked: the last heartbeat": {
			view{seenUntil: minute(70), records: []v1alpha1.UsageRecord{aRecord(10)}}, want{End: 70, Estimated: true},
		},
		"it went while nobody looked, and there was no heartbeat since: when its record was made": {
			view{seenUntil: minute(5), records: []v1alpha1.UsageRecord{aRecord(10)}}, want{End: 10, Estimated: true},
		},
		"it went long ago": {view{seenUntil: minute(70), records: []v1alpha1.UsageRecord{ended(aRecord(10), 20)}}, want{}},
		"it is there though its record has ended: the rest": {
			view{pod: aPod(), place: team, records: []v1alpha1.UsageRecord{guessed(aRecord(10), 30)}}, want{Start: []int{30}},
		},
		"the rest is there, too": {
			view{pod: aPod(), place: team, records: []v1alpha1.UsageRecord{guessed(aRecord(10), 30), aRest(30)}}, want{},
		},
		"the rest has ended, too": {
			view{pod: aPod(), place: team, records: []v1alpha1.UsageRecord{guessed(aRest(30), 50), guessed(aRecord(10), 30)}}, want{Start: []int{50}},
		},
		"it has ended after the end that was guessed: the rest until then": {
			view{pod: aPod(finished(v1.PodSucceeded, 60)), place: team, records: []v1alpha1.UsageRecord{guessed(aRecord(10), 30)}},
			want{Start: []int{30}, End: 60, Release: true},
		},
		"it went after the end that was guessed: the rest until then": {
			view{pod: aPod(free), gone: end{at: minute(60)}, place: team, records: []v1alpha1.UsageRecord{guessed(aRecord(10), 30)}}, want{Start: []int{30}, End: 60},
		},
		"it has ended before the end that was guessed": {
			view{pod: aPod(finished(v1.PodSucceeded, 20)), place: team, records: []v1alpha1.UsageRecord{guessed(aRecord(10), 30)}}, want{Release: true},
		},
		"its node says another end than before": {
			view{pod: aPod(finished(v1.PodSucceeded, 41)), place: team, records: []v1alpha1.UsageRecord{ended(aRecord(10), 40)}}, want{Release: true},
		},
		"nobody said when it failed, and its deletion says nothing": {
			view{pod: aPod(neverSaid, deleted(60, 0)), place: team, records: []v1alpha1.UsageRecord{guessed(aRecord(10), 30)}}, want{Release: true},
		},
		"one guess after the other": {
			view{pod: aPod(neverSaid), place: team, records: []v1alpha1.UsageRecord{guessed(aRecord(10), 30)}},
			want{Release: true},
		},
		"its record was restored without its status, and nobody knows the pod": {
			view{records: []v1alpha1.UsageRecord{restored(aRecord(10), 90)}, seenUntil: minute(95)}, want{},
		},
		"likewise, and the pod goes on": {
			view{pod: aPod(), place: team, records: []v1alpha1.UsageRecord{restored(aRecord(10), 90)}}, want{Confirm: 1},
		},
		"likewise, and the pod says when it ended": {
			view{pod: aPod(finished(v1.PodSucceeded, 40)), place: team, records: []v1alpha1.UsageRecord{restored(aRecord(10), 90)}}, want{End: 40, Release: true},
		},
		"likewise, in a month that may be on a final invoice": {
			view{pod: aPod(finished(v1.PodSucceeded, 40)), place: team, records: []v1alpha1.UsageRecord{restored(aRecord(10), 60*24*20)}}, want{Release: true},
		},
		"likewise, and nobody says when it ended": {
			view{pod: aPod(neverSaid), place: team, records: []v1alpha1.UsageRecord{restored(aRecord(10), 90)}}, want{Release: true},
		},
		"likewise, and another one goes on from it, which alone goes on": {
			view{pod: aPod(), place: team, records: []v1alpha1.UsageRecord{restored(aRecord(10), 90), restored(aRest(30), 90)}}, want{Confirm: 1},
		},
		"likewise, and which alone ends": {
			view{pod: aPod(finished(v1.PodSucceeded, 40)), place: team, records: []v1alpha1.UsageRecord{restored(aRecord(10), 90), restored(aRest(30), 90)}},
			want{End: 40, Release: true},
		},
		"outside of the tenants' namespaces": {view{pod: aPod(finished(v1.PodSucceeded, 40)), place: place{pool: aPool()}}, want{Release: true}},
		"on a node of no pool":               {view{pod: aPod(finished(v1.PodSucceeded, 40)), place: place{tenant: "team-a"}}, want{Release: true}},
		"its devices were no tenant's when it was bound: from then on": {
			view{pod: aPod(), place: joinedAt(30)}, want{Start: []int{30}},
		},
		"it ended before its devices were a tenant's": {
			view{pod: aPod(finished(v1.PodSucceeded, 20)), place: joinedAt(30)}, want{Release: true},
		},
		"it was bound in the future, by a wrong clock": {
			view{pod: aPod(func(p *v1.Pod) { p.Status.Conditions[0].LastTransitionTime = stamp(500) }), place: team}, want{Start: []int{100}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.view.now = minute(100)
			got := decide(tc.view)
			minutes := func(at time.Time) int { return int(at.Sub(minute(0)) / time.Minute) }
			is := want{Release: got.release, Confirm: len(got.confirm)}
			records := tc.view.records
			for _, r := range got.create {
				is.Start = append(is.Start, minutes(r.Spec.Start.Time))
				records = append(records, r)
			}
			if got.end != nil {
				for _, i := range endable(records, *got.end) {
					status := ending(&records[i], *got.end)
					is.End, is.Estimated = minutes(status.End.Time), status.Estimated
					is.Ends++
				}
				is.Ends--
			}
			if diff := cmp.Diff(tc.want, is); diff != "" {
				t.Errorf("want - got +\n%s", diff)
			}
		})
	}
}

// TestJoinedOnce: the time since which a pod's devices are its tenant's is computed once where a record
// is to be created, and not at other events of a pod.
func TestJoinedOnce(t *testing.T) {
	second := func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests["nvidia.com/mig-3g.40gb"] = resource.MustParse("1")
	}
	other := aRecord(10)
	other.Name = "u1-1"
	for name, tc := range map[string]struct {
		pod       *v1.Pod
		records   []v1alpha1.UsageRecord
		wantLooks int
		wantMade  int
	}{
		"it waits":                             {pod: aPod(unbound)},
		"it has no record":                     {pod: aPod(), wantLooks: 1, wantMade: 1},
		"it has no record of two":              {pod: aPod(second), wantLooks: 1, wantMade: 2},
		"it has one record of two":             {pod: aPod(second), records: []v1alpha1.UsageRecord{aRecord(10)}, wantLooks: 1, wantMade: 1},
		"it runs and has its record":           {pod: aPod(), records: []v1alpha1.UsageRecord{aRecord(10)}},
		"it runs and has both":                 {pod: aPod(second), records: []v1alpha1.UsageRecord{aRecord(10), other}},
		"it ends and has its record":           {pod: aPod(finished(v1.PodSucceeded, 40)), records: []v1alpha1.UsageRecord{aRecord(10)}},
		"it has ended and all is written":      {pod: aPod(finished(v1.PodSucceeded, 40), free), records: []v1alpha1.UsageRecord{ended(aRecord(10), 40)}},
		"it goes on from a wrong end":          {pod: aPod(), records: []v1alpha1.UsageRecord{guessed(aRecord(10), 30)}, wantLooks: 1, wantMade: 1},
		"it ended before and has no record":    {pod: aPod(finished(v1.PodSucceeded, 4)), wantLooks: 1},
		"it has ended, and had no record then": {pod: aPod(finished(v1.PodSucceeded, 40)), wantLooks: 1, wantMade: 1},
	} {
		t.Run(name, func(t *testing.T) {
			looks := 0
			at := place{tenant: "team-a", pool: aPool(), joined: func() time.Time { looks++; return minute(5) }}
			made := decide(view{pod: tc.pod, place: at, records: tc.records, now: minute(100)}).create
			if looks != tc.wantLooks || len(made) != tc.wantMade {
				t.Errorf("looked %d times for %d records, want %d times for %d", looks, len(made), tc.wantLooks, tc.wantMade)
			}
			for i := range made {
				if made[i].Spec.Start.IsZero() {
					t.Errorf("record %s has no start", made[i].Name)
				}
			}
		})
	}
}

func TestPodDeparture(t *testing.T) {
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		unsure bool
		want   end
	}{
		"it had ended before":               {aPod(finished(v1.PodSucceeded, 40)), false, end{at: minute(40)}},
		"it had ended before, seen late":    {aPod(finished(v1.PodSucceeded, 40)), true, end{at: minute(40)}},
		"while it ran":                      {aPod(), false, end{at: minute(100)}},
		"while it ran, long after a delete": {aPod(deleted(50, 0)), false, end{at: minute(100)}},
		"it had failed, nobody says when":   {aPod(neverSaid), false, end{at: minute(100), estimated: true}},
		"the same, seen late":               {aPod(neverSaid), true, end{at: minute(90), estimated: true}},
		"some time before this":             {aPod(), true, end{at: minute(90), estimated: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := goneAt(tc.pod, tc.unsure, minute(90), minute(100)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestHolds(t *testing.T) {
	pod := aPod(func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests["nvidia.com/mig-3g.40gb"] = resource.MustParse("2")
		p.Spec.Containers[0].Resources.Requests["rdma/hca"] = resource.MustParse("1")
		p.Spec.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
		}}}
	})
	at := place{tenant: "a", pool: aPool(), labels: map[string]string{labelProduct: "NVIDIA-H100"}}
	type held struct {
		Name, Resource, Model string
		Quantity              v1alpha1.Decimal
	}
	var got []held
	for _, r := range holds(pod, at, minute(100)) {
		got = append(got, held{r.Name, r.Spec.Resource, r.Spec.Model, r.Spec.Quantity})
	}
	want := []held{
		{"u1", "nvidia.com/gpu", "NVIDIA-H100", "8"}, // an init container's eight are more than the four later
		{"u1-1", "nvidia.com/mig-3g.40gb", "NVIDIA-H100", "0.856"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want - got +\n%s", diff)
	}
}

func TestModelOf(t *testing.T) {
	topology := func(models ...string) *topologyv1alpha1.NodeGPUTopology {
		t := &topologyv1alpha1.NodeGPUTopology{}
		for i, m := range models {
			t.Spec.GPUs = append(t.Spec.GPUs, topologyv1alpha1.GPU{ID: string(rune('a' + i)), Model: m})
		}
		return t
	}
	label := map[string]string{labelProduct: "NVIDIA-L4"}
	for name, tc := range map[string]struct {
		at   place
		want string
	}{
		"the graph's, as a label has it":    {place{topology: topology("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"), labels: label}, "NVIDIA-H100-80GB-HBM3"},
		"several: none":                     {place{topology: topology("A", "B"), labels: label}, ""},
		"the label's, where no graph is":    {place{labels: label}, "NVIDIA-L4"},
		"the label's, where the graph mute": {place{topology: topology(""), labels: label}, "NVIDIA-L4"},
		"what no price book can name":       {place{topology: topology("=Tesla (R) V100™")}, "Tesla-R-V100"},
		"nobody knows":                      {place{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := modelOf(aPod(), tc.at, "nvidia.com/gpu"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestMemoryBounds: the memory of pods without records does not grow for ever.
func TestMemoryBounds(t *testing.T) {
	m := newMemory()
	for i := range 1000 {
		m.keep(aPod(func(p *v1.Pod) { p.UID = types.UID(minute(i).String()) }), end{at: minute(i)})
	}
	// Those that are too old go within a tenth of the time.
	if n := len(m.pods); n > 62+6 {
		t.Errorf("it remembers %d pods, of which 61 went in the last hour and 6 in the six minutes before", n)
	}
}

// TestKeptStatus: the copy of a record whose namespace is being deleted has the end, price and invoice
// of the original, whichever of the two had them first.
func TestKeptStatus(t *testing.T) {
	end, later := metav1.NewTime(time.Unix(3600, 0)), metav1.NewTime(time.Unix(7200, 0))
	ended := v1alpha1.UsageRecordStatus{End: &end}
	priced := v1alpha1.UsageRecordStatus{End: &end, UnitPrice: "2", BilledSeconds: 3600, Cost: "2.00"}
	dear := v1alpha1.UsageRecordStatus{End: &end, UnitPrice: "5", BilledSeconds: 3600, Cost: "5.00"}
	marked := priced
	marked.Invoice = "inv-1"
	for name, tc := range map[string]struct{ kept, record, want v1alpha1.UsageRecordStatus }{
		"a new copy has all of it":                {record: marked, want: marked},
		"neither has ended":                       {},
		"the copy has another end":                {kept: v1alpha1.UsageRecordStatus{End: &later}, record: ended, want: v1alpha1.UsageRecordStatus{End: &later}},
		"the original got a price after the copy": {kept: ended, record: priced, want: priced},
		"and an invoice":                          {kept: ended, record: marked, want: marked},
		"the copy has a price already":            {kept: priced, record: ended, want: priced},
		"both have one":                           {kept: priced, record: dear, want: priced},
		"the copy is on an invoice":               {kept: marked, record: priced, want: marked},
		"only the original is on an invoice":      {kept: priced, record: marked, want: marked},
		"the original is priced, the copy invoiced": {
			kept: v1alpha1.UsageRecordStatus{End: &end, Invoice: "inv-1"}, record: priced, want: marked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, keptStatus(tc.kept, tc.record)); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}
