// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestIncompleteGang: a gang that lacks members, and that could never be placed, hears both. What is said counts the
// missing members, which are taken to be like those that are there, unless these differ.
func TestIncompleteGang(t *testing.T) {
	const (
		lacks, create = "PodGroup team/train has 2 of the 3 members that start together", "create the missing members, or lower the number that starts together"
		alike, differ = "create the missing members like those that are there; and ", create + "; and for the 2 that are there: "
	)
	for name, tc := range map[string]struct {
		gpus       [2]int // of the members that are there
		key, value string
		want, next string
		lacks      []Cause
	}{
		"they fit": {gpus: [2]int{2, 2}, key: podrequest.MinBandwidthKey, value: "20", want: lacks, next: create},
		"no node has the bandwidth": {
			gpus: [2]int{2, 2}, key: podrequest.MinBandwidthKey, value: "400", lacks: []Cause{causeOf(placement.LowBandwidth)},
			want: lacks + "; and the gang can never fit in this cluster because of nvtopo.dev/min-bandwidth: 400 of the members; even if no other pod ran: room for 0 of 3 members",
			next: alike + "set nvtopo.dev/min-bandwidth to 50GB/s (kubectl -n team annotate --overwrite pod asks second nvtopo.dev/min-bandwidth=50GB/s)",
		},
		"no node has the model": {
			gpus: [2]int{2, 2}, key: podrequest.GPUModelKey, value: "H100", lacks: []Cause{causeOf(placement.FewSuitableGPUs)},
			want: lacks + "; and the gang can never fit in this cluster because of nvtopo.dev/gpu-model: H100 of the members; even if no other pod ran: room for 0 of 3 members",
			next: alike + "leave out nvtopo.dev/gpu-model (kubectl -n team annotate --overwrite pod asks second nvtopo.dev/gpu-model-)",
		},
		"there are too few GPUs for those that are there": {
			gpus: [2]int{6, 6}, lacks: []Cause{FewGPUs},
			want: lacks + "; and the gang can never fit in this cluster: it asks 18 nvidia.com/gpu, and the nodes that it may run on have 8",
			next: alike + "lower the number that starts together to 1, run smaller members, or add nodes",
		},
		"there are too few GPUs for the missing one": {
			gpus: [2]int{4, 4}, lacks: []Cause{FewGPUs},
			want: lacks + "; and the gang can never fit in this cluster: it asks 12 nvidia.com/gpu, and the nodes that it may run on have 8",
			next: alike + "lower the number that starts together to 2, run smaller members, or add nodes",
		},
		"no node has the bandwidth, and there are too few GPUs": {
			gpus: [2]int{6, 6}, key: podrequest.MinBandwidthKey, value: "400", lacks: []Cause{causeOf(placement.LowBandwidth), FewGPUs},
			want: lacks + "; and the gang can never fit in this cluster because of nvtopo.dev/min-bandwidth: 400 of the members, and also of its size",
			next: alike + "set nvtopo.dev/min-bandwidth to 25GB/s (kubectl -n team annotate --overwrite pod asks second nvtopo.dev/min-bandwidth=25GB/s) and lower the number that starts together to 1, with which there is room when no other pod runs, or",
		},
		"they differ, and there are too few GPUs for them": {
			gpus: [2]int{6, 5}, lacks: []Cause{FewGPUs},
			want: lacks + "; and for the 2 that are there: the gang can never fit in this cluster: it asks 11 nvidia.com/gpu, and the nodes that it may run on have 8",
			next: differ + "run smaller members, or add nodes",
		},
		"they differ, and only the missing one has no room": {gpus: [2]int{5, 3}, want: lacks, next: create},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			var members []*v1.Pod
			for i, name := range []string{"asks", "second"} {
				p := pod(name, tc.gpus[i])
				if tc.key != "" {
					p = p.Annotation(tc.key, tc.value)
				}
				members = append(members, p.Obj())
			}
			w.group("train", 3, members)
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			if e.Cause != GangIncomplete || !slices.Equal(e.Lacks, tc.lacks) || !strings.HasPrefix(e.Reason, tc.want) || tc.lacks == nil && e.Reason != tc.want {
				t.Errorf("%s, lacks %v: %q\nwant GangIncomplete, %v: %q", e.Cause, e.Lacks, e.Reason, tc.lacks, tc.want)
			}
			if !strings.HasPrefix(e.Next, tc.next) || tc.lacks == nil && e.Next != tc.next {
				t.Errorf("next step %q, want %q", e.Next, tc.next)
			}
		})
	}
}

// TestOutdatedCount: that members are missing is no reason any more when none is. The gang was said to be refused
// by another plugin.
func TestOutdatedCount(t *testing.T) {
	for name, tc := range map[string]struct {
		members int
		said    string
		want    Cause
		shown   string // as the scheduler's words
	}{
		"the last member came":          {members: 3, said: "gang: 2 of 3 members", want: WaitsForItsTurn},
		"one came, and one is missing":  {members: 2, said: "gang: 1 of 3 members", want: GangIncomplete, shown: "gang: 2 of 3 members"},
		"the scheduler said more since": {members: 3, said: "a volume is missing", want: OtherPlugin, shown: "a volume is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			var members []*v1.Pod
			for _, name := range []string{"asks", "second", "third"}[:tc.members] {
				p := pod(name, 1).Obj()
				if name != "third" {
					p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: tc.said}}
				}
				members = append(members, p)
			}
			w.group("train", 3, members)
			for name, explain := range map[string]func() (*Explanation, error){
				"the pod":   func() (*Explanation, error) { return Pod(w.World, "team", "asks") },
				"the group": func() (*Explanation, error) { return PodGroup(w.World, "team", "train") },
			} {
				e, err := explain()
				if err != nil {
					t.Fatal(err)
				}
				if name == "the group" && tc.want == GangIncomplete {
					tc.shown = "" // it is said of its pods
				}
				if e.Cause != tc.want || e.Scheduler != tc.shown || tc.shown == "" && strings.Contains(e.Reason, tc.said) {
					t.Errorf("%s: %s: %s; the scheduler said %q; want %s, %q", name, e.Cause, e.Reason, e.Scheduler, tc.want, tc.shown)
				}
			}
		})
	}
}

// TestGangWithoutSize: a gang of which nobody says how large it is hears how to say it, and is not said to
// be whole.
func TestGangWithoutSize(t *testing.T) {
	member := func(name string) *testobj.PodWrapper { return pod(name, 1).Annotation(gangrequest.GangKey, "g") }
	for name, tc := range map[string]struct {
		pods       []*v1.Pod
		want, next string
		minimum    int
	}{
		"bare pods": {
			pods: []*v1.Pod{member("asks").Obj(), member("other").Obj()},
			want: "no nvtopo.dev/gang-size is given (members there: 2): Pod team/asks: metadata.annotations[nvtopo.dev/gang-size]: is missing",
			next: "set nvtopo.dev/gang-size to how many members start together, of which 2 exist now (kubectl -n team annotate --overwrite pod asks other nvtopo.dev/gang-size=2)",
		},
		"pods of a Job": {
			pods: []*v1.Pod{member("asks").Owner("Job", "train", "j").Obj()},
			want: "no nvtopo.dev/gang-size is given (members there: 1): ",
			next: "set nvtopo.dev/gang-size to how many members start together, of which 1 exist now (kubectl -n team annotate --overwrite pod asks nvtopo.dev/gang-size=1; pods that Job train makes later need it again, as its template cannot be changed)",
		},
		"a PodGroup that is not there": {
			pods: []*v1.Pod{pod("asks", 1).Label(schedulingv1alpha1.PodGroupLabel, "g").Obj()},
			want: "PodGroup team/g: there is no such PodGroup",
			next: "create PodGroup team/g, whose spec.minMember says how many members start together, or correct the label scheduling.x-k8s.io/pod-group of the pods",
		},
		"a size that cannot be read": {
			pods: []*v1.Pod{member("asks").Annotation(gangrequest.GangSizeKey, "two").Obj()},
			want: `Pod team/asks: metadata.annotations[nvtopo.dev/gang-size]: "two": want a number of pods`, next: "correct the value that is named",
		},
		"a wish that cannot be read": {
			pods: []*v1.Pod{member("asks").Annotation(gangrequest.GangSizeKey, "1").Annotation(gangrequest.SegmentSizeKey, "x").Obj()},
			want: "Pod team/asks: metadata.annotations[nvtopo.dev/segment-size]: ", next: "correct the value that is named", minimum: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			for _, p := range tc.pods {
				w.waits(p)
			}
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			if e.Cause != Unreadable || !strings.HasPrefix(e.Reason, tc.want) || e.Next != tc.next {
				t.Errorf("%s: %q, next step %q\nwant %q, %q", e.Cause, e.Reason, e.Next, tc.want, tc.next)
			}
			if e.Gang.Minimum != tc.minimum || e.Gang.Have != len(tc.pods) {
				t.Errorf("%d of %d members, want %d of %d", e.Gang.Have, e.Gang.Minimum, len(tc.pods), tc.minimum)
			}
		})
	}
	w := newTestEnv()
	w.node(t, "n0", cube, nil).group("g", 0, []*v1.Pod{pod("asks", 1).Obj(), pod("other", 1).Obj()})
	e, err := Pod(w.World, "team", "asks")
	want := "PodGroup team/g: spec.minMember is missing, and taken to be 1; to set it: kubectl -n team patch podgroups.scheduling.x-k8s.io g --type merge -p '{\"spec\":{\"minMember\":2}}'"
	if err != nil || !slices.Contains(e.Evidence, want) {
		t.Errorf("evidence %q (%v), want %q", e.Evidence, err, want)
	}
}

// TestSegmentsBehindLauncher: segments are of the workers alone, as for the scheduler, whatever rank the
// launcher has. With its rank they were cut after the first and the third worker, and the gang was said to
// have a place.
func TestSegmentsBehindLauncher(t *testing.T) {
	for name, tc := range map[string]struct {
		racks []string // of nodes with room for one worker
		want  string   // the level
	}{
		"two racks have room for two workers":    {racks: []string{"a", "a", "b", "b"}, want: "cluster"},
		"one rack has room for two, two for one": {racks: []string{"a", "a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			for i, rack := range tc.racks {
				w.node(t, fmt.Sprint("n", i), cube, map[string]string{"topology.kubernetes.io/rack": rack})
			}
			for i := range 5 {
				gpus := 8
				if i == 0 {
					gpus = 0
				}
				w.waits(pod(fmt.Sprint("g-", i), gpus).Annotations(map[string]string{
					gangrequest.GangKey: "g", gangrequest.GangSizeKey: "5", gangrequest.SegmentSizeKey: "2", gangrequest.RequiredSegmentKey: "rack",
				}).Obj())
			}
			key, _ := gangrequest.KeyOf(w.pod("g-0"))
			e, err := GangOf(w.World, key)
			if err != nil || e.Gang.Level != tc.want {
				t.Errorf("level %q, %s (%v); want %q", e.Gang.Level, e.Reason, err, tc.want)
			}
		})
	}
}

// TestManyWishes: of a gang whose members ask for many values of one annotation, or many amounts, the
// values are one wish, so that the number of plans is bounded by what can be asked, and what is said is
// short.
func TestManyWishes(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes, members int
		asks           func(p *testobj.PodWrapper, i int)
		want           []string // the wishes of the members
		reason, next   string
	}{
		"200 bandwidths": {
			nodes: 50, members: 200,
			asks:   func(p *testobj.PodWrapper, i int) { p.Annotation(podrequest.MinBandwidthKey, strconv.Itoa(400+i)) },
			want:   []string{"nvtopo.dev/min-bandwidth of the members", "1 of cpu for each member", "1Gi of memory for each member"},
			reason: "because of nvtopo.dev/min-bandwidth of the members; even if no other pod ran: room for 0 of 200 members",
			next:   "leave out nvtopo.dev/min-bandwidth (kubectl -n team annotate --overwrite pod asks m1 m2 m3 m4 m5 m6 m7 nvtopo.dev/min-bandwidth-, and so for 192 members more), without which",
		},
		"18 amounts, 17 bandwidths, and a member without": {
			nodes: 5, members: 18,
			asks: func(p *testobj.PodWrapper, i int) {
				if p.CPU(fmt.Sprint(100+i, "m")); i > 0 {
					p.Annotation(podrequest.MinBandwidthKey, strconv.Itoa(400+i))
				}
			},
			want:   []string{"nvtopo.dev/min-bandwidth of m1, m2, m3 and 14 more", "cpu for each member", "memory for each member"},
			reason: "because of nvtopo.dev/min-bandwidth of m1, m2, m3 and 14 more; even if no other pod ran: room for 1 of 18 members",
			next:   "leave out nvtopo.dev/min-bandwidth (kubectl -n team annotate --overwrite pod m1 m2 m3 m4 m5 m6 m7 m8 nvtopo.dev/min-bandwidth-, and so for 9 members more), without which",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			for i := range tc.nodes {
				w.node(t, fmt.Sprint("n", i), cube, nil)
			}
			var members []*v1.Pod
			for i := range tc.members {
				p := pod(fmt.Sprint("m", i), 2)
				if i == 0 {
					p = pod("asks", 2)
				}
				tc.asks(p, i)
				members = append(members, p.Obj())
			}
			w.group("train", int32(tc.members), members)
			s := newScene(w.World)
			key, _ := gangrequest.KeyOf(w.pod("asks"))
			a, err := s.askOf(s.readGang(key))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, namesOf(slices.Concat(a.memberWishes(), a.each(amounts, " for each member")))); diff != "" {
				t.Errorf("wishes (-want +got):\n%s", diff)
			}
			e, err := Pod(w.World, "team", "asks")
			if err != nil || !strings.Contains(e.Reason, tc.reason) || !strings.HasPrefix(e.Next, tc.next) {
				t.Errorf("%s: %.2000q, next step %.2000q (%v)\nwant %q, %q", e.Cause, e.Reason, e.Next, err, tc.reason, tc.next)
			}
		})
	}
}

// TestManyListed: of many values, commands and wishes without which a gang has room the first few are listed.
func TestManyListed(t *testing.T) {
	var shapes []*question
	var changes []annotation
	for i := range 5 {
		p := pod(fmt.Sprint("m", i), 1).Annotation(podrequest.MinBandwidthKey, strconv.Itoa(20+i)).Obj()
		q := &question{pod: p}
		shapes, changes = append(shapes, q), append(changes, annotation{key: podrequest.MinBandwidthKey, value: strconv.Itoa(i), by: []*question{q}})
	}
	for _, q := range shapes {
		shapes[0].members = append(shapes[0].members, q.pod)
	}
	a := &ask{shapes: append(slices.Clone(shapes), &question{pod: pod("none", 1).Obj()})}
	if got, want := a.othersAsk(podrequest.MinBandwidthKey, []wish{{by: shapes[:1]}}), "21 or 22 or 23 or 1 other value or none"; got != want {
		t.Errorf("the others ask %q, want %q", got, want)
	}
	got := annotate(shapes, changes...)
	if strings.Count(got, "kubectl") != maxNamed || !strings.HasSuffix(got, "pod m2 nvtopo.dev/min-bandwidth=2), and so for 2 members more") {
		t.Errorf("commands %q", got)
	}
	w := newTestEnv()
	w.node(t, "n0", cube, nil).group("train", 1, []*v1.Pod{pod("asks", 1).Annotations(map[string]string{
		podrequest.MinLinkKey: "SYS", podrequest.MinBandwidthKey: "1", podrequest.MinGPUMemoryKey: "1Gi", podrequest.MessageSizeKey: "1Gi",
	}).Obj()})
	s := newScene(w.World)
	key, _ := gangrequest.KeyOf(w.pod("asks"))
	fits, err := s.askOf(s.readGang(key))
	if err != nil || len(fits.relaxedGang()) != maxNamed {
		t.Errorf("without each of %q there is room (%v), and not the first %d are listed", namesOf(fits.memberWishes()), err, maxNamed)
	}
}

// TestOthersAsk: of several names of an annotation the value counts that the scheduler reads, and an empty
// value is one.
func TestOthersAsk(t *testing.T) {
	for name, tc := range map[string]struct {
		other map[string]string
		want  string
	}{
		"none":      {},
		"two names": {other: map[string]string{podrequest.TopologyPolicyKey: "restricted", "hami.io/gpu-scheduler-policy": "topology-aware"}, want: "restricted"},
		"empty":     {other: map[string]string{podrequest.TopologyPolicyKey: ""}, want: `""`},
	} {
		t.Run(name, func(t *testing.T) {
			first := &question{pod: pod("asks", 1).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj()}
			a := &ask{shapes: []*question{first, {pod: pod("other", 1).Annotations(tc.other).Obj()}}}
			for range 50 { // a map has no order
				if got := a.othersAsk(podrequest.TopologyPolicyKey, []wish{{by: []*question{first}}}); got != tc.want {
					t.Fatalf("the others ask %q, want %q", got, tc.want)
				}
			}
		})
	}
}
