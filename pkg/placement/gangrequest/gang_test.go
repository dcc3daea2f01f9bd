// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

func TestPodGroupWishes(t *testing.T) {
	tests := map[string]struct {
		group    texts
		want     Wishes
		wantErr  string // empty: the gang can be placed
		wantWarn string
	}{
		"none": {},
		"all of a gang that stays together": {
			group: texts{
				StrategyKey: "communication-heavy", RequiredKey: "spine", PreferredKey: "topology.kubernetes.io/rack",
				SegmentSizeKey: "4", RequiredSegmentKey: "rack", PatienceKey: "10m", RankOrderKey: "name",
			},
			want: Wishes{
				Strategy: fabric.StrategyCommunicationHeavy, Required: "spine", Preferred: "topology.kubernetes.io/rack",
				SegmentSize: 4, SegmentLevel: "rack", SegmentRequired: true, Patience: 10 * time.Minute, ByName: true,
			},
		},
		"all of a gang that is spread": {
			group: texts{StrategyKey: "compute-heavy", SpreadOverKey: "rack", MaxPerDomainKey: "2", RankOrderKey: "index"},
			want:  Wishes{Strategy: fabric.StrategyComputeHeavy, SpreadOver: "rack", MaxPerDomain: 2},
		},
		"a communication-heavy gang is patient":   {group: texts{StrategyKey: "communication_heavy"}, want: Wishes{Strategy: fabric.StrategyCommunicationHeavy, Patience: 300 * time.Second}},
		"unless it says otherwise":                {group: texts{StrategyKey: "same-switch", PatienceKey: "0s"}, want: Wishes{Strategy: fabric.StrategyCommunicationHeavy}},
		"compute_heavy is compute-heavy":          {group: texts{StrategyKey: "compute_heavy"}, want: Wishes{Strategy: fabric.StrategyComputeHeavy}},
		"spread is compute-heavy":                 {group: texts{StrategyKey: "spread"}, want: Wishes{Strategy: fabric.StrategyComputeHeavy}},
		"best-effort is mixed":                    {group: texts{StrategyKey: "best-effort"}},
		"members of several models":               {group: texts{MixedModelsKey: "true"}, want: Wishes{MixedModels: true}},
		"a small message":                         {group: texts{MessageSizeKey: "64k"}, want: Wishes{MessageBytes: 64_000}},
		"a message that is no size":               {group: texts{MessageSizeKey: "much"}, wantErr: `"much"`},
		"neither one model nor several":           {group: texts{MixedModelsKey: "some"}, wantErr: `"some" is neither true nor false`},
		"mixed is the default":                    {group: texts{StrategyKey: "mixed"}},
		"segments without a level":                {group: texts{SegmentSizeKey: "2"}, want: Wishes{SegmentSize: 2}},
		"a preferred level of segments":           {group: texts{SegmentSizeKey: "2", PreferredSegmentKey: "rack"}, want: Wishes{SegmentSize: 2, SegmentLevel: "rack"}},
		"a level of segments without size":        {group: texts{PreferredSegmentKey: "rack"}, want: Wishes{SegmentLevel: "rack"}, wantErr: "PodGroup ns/g: metadata.annotations[nvtopo.dev/preferred-segment-topology]: nvtopo.dev/segment-size is missing"},
		"two levels of segments":                  {group: texts{SegmentSizeKey: "2", PreferredSegmentKey: "rack", RequiredSegmentKey: "rack"}, want: Wishes{SegmentSize: 2, SegmentLevel: "rack", SegmentRequired: true}, wantErr: "nvtopo.dev/required-segment-topology is set too"},
		"segments of a gang that is spread":       {group: texts{SegmentSizeKey: "2", SpreadOverKey: "rack"}, want: Wishes{SegmentSize: 2, SpreadOver: "rack"}, wantErr: "PodGroup ns/g: metadata.annotations[nvtopo.dev/segment-size]: members cannot be kept in segments and be spread"},
		"a bound on domains that nobody named":    {group: texts{MaxPerDomainKey: "2"}, want: Wishes{MaxPerDomain: 2}, wantErr: "nvtopo.dev/spread-over is missing"},
		"an unknown strategy":                     {group: texts{StrategyKey: "fast"}, wantErr: `PodGroup ns/g: metadata.annotations[nvtopo.dev/placement-strategy]: "fast": want communication-heavy, compute-heavy or mixed`},
		"a size that is no number":                {group: texts{SegmentSizeKey: "four"}, wantErr: `PodGroup ns/g: metadata.annotations[nvtopo.dev/segment-size]: "four": want a number of pods, 1 to 16384`},
		"a size of nothing":                       {group: texts{SegmentSizeKey: "0"}, wantErr: `"0": want a number of pods`},
		"a size with a level that cannot be read": {group: texts{SegmentSizeKey: "-1", RequiredSegmentKey: "rack"}, want: Wishes{SegmentLevel: "rack", SegmentRequired: true}, wantErr: `"-1": want a number of pods`},
		"an empty level":                          {group: texts{RequiredKey: ""}, wantErr: `"": want the name of a level or a node label`},
		"a level with strange letters":            {group: texts{PreferredKey: "rack\u202e"}, wantErr: `want the name of a level or a node label`},
		"patience without unit":                   {group: texts{PatienceKey: "300"}, wantErr: `"300": want a duration such as 300s, at most 24h`},
		"patience for ever":                       {group: texts{PatienceKey: "25h"}, wantErr: `"25h": want a duration`},
		"a rank order that is none":               {group: texts{RankOrderKey: "size"}, wantErr: `"size": want index or name`},
		"a value that is too long":                {group: texts{RequiredKey: strings.Repeat("x", 2000)}, wantErr: "2000 bytes, at most 1024 are read"},
		"a long value is not repeated in full":    {group: texts{StrategyKey: strings.Repeat("x", 1000)}, wantErr: `"` + strings.Repeat("x", 64) + `...": want`},
		"two faults are both named":               {group: texts{PatienceKey: "x", RankOrderKey: "x"}, wantErr: "at most 24h; PodGroup ns/g"},
		"a key that is not known":                 {group: texts{"nvtopo.dev/segmentsize": "4"}, wantWarn: "PodGroup ns/g: metadata.annotations[nvtopo.dev/segmentsize]: is no annotation of a PodGroup"},
		"a key of pods":                           {group: texts{GangSizeKey: "4"}, wantWarn: "is no annotation of a PodGroup"},
		"what the scheduler writes is known":      {group: texts{StateKey: "x", PlacementKey: "x", NodesKey: "x"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := Read(groupKey, podGroup(2, tc.group), []*v1.Pod{member("a"), member("b")})
			if diff := cmp.Diff(tc.want, g.Wishes); diff != "" {
				t.Errorf("wishes (-want,+got)\n%s", diff)
			}
			checkMessages(t, g, tc.wantErr, tc.wantWarn)
			if g.Complete() != (tc.wantErr == "") {
				t.Errorf("complete: %t", g.Complete())
			}
		})
	}
}

// checkMessages compares a gang's error and warnings with a part of each.
func checkMessages(t *testing.T, g *Gang, wantErr, wantWarn string) {
	t.Helper()
	if (g.Err != nil) != (wantErr != "") || g.Err != nil && !strings.Contains(g.Err.Error(), wantErr) {
		t.Errorf("error %v, want %q", g.Err, wantErr)
	}
	if got := strings.Join(g.Warnings, "; "); (got != "") != (wantWarn != "") || !strings.Contains(got, wantWarn) {
		t.Errorf("warnings %q, want %q", got, wantWarn)
	}
}

func TestSizeTimeoutAndPriority(t *testing.T) {
	withTimeout := func(s int32) *schedulingv1alpha1.PodGroup {
		g := podGroup(2, nil)
		g.Spec.ScheduleTimeoutSeconds = &s
		return g
	}
	priority := func(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = new(n) } }
	plainKey, kueueKey := Key{SourceAnnotation, "ns", "g"}, Key{SourceKueue, "ns", "g"}
	pair := func(change ...func(*v1.Pod)) []*v1.Pod {
		return []*v1.Pod{member("a", change...), member("b", change...)}
	}
	tests := map[string]struct {
		key          Key
		group        *schedulingv1alpha1.PodGroup
		pods         []*v1.Pod
		want         Gang
		wantErr      string
		wantWarn     string
		wantComplete bool
	}{
		"a PodGroup": {
			key: groupKey, group: podGroup(2, nil), pods: pair(),
			want: Gang{UID: "uid-g", Minimum: 2}, wantComplete: true,
		},
		"a PodGroup whose pods are missing": {
			key: groupKey, group: podGroup(3, nil), pods: pair(), want: Gang{UID: "uid-g", Minimum: 3},
		},
		"a PodGroup that comes after its pods": {
			key: groupKey, pods: pair(), want: Gang{Minimum: 1},
			wantErr: "PodGroup ns/g: there is no such PodGroup",
		},
		"a PodGroup without minimum": {
			key: groupKey, group: podGroup(0, nil), pods: pair(), want: Gang{UID: "uid-g", Minimum: 1},
			wantWarn: "PodGroup ns/g: spec.minMember: is missing, and taken to be 1", wantComplete: true,
		},
		"a minimum that nobody can have": {
			key: groupKey, group: podGroup(-2, nil), want: Gang{UID: "uid-g", Minimum: 1},
			wantErr: "PodGroup ns/g: spec.minMember: -2: want 1 to 16384",
		},
		"a timeout": {
			key: groupKey, group: withTimeout(60), pods: pair(), want: Gang{UID: "uid-g", Minimum: 2, MemberWait: time.Minute}, wantComplete: true,
		},
		"a timeout of nothing": {
			key: groupKey, group: withTimeout(0), want: Gang{UID: "uid-g", Minimum: 2},
			wantErr: "PodGroup ns/g: spec.scheduleTimeoutSeconds: 0: want 1 to 86400",
		},
		"the least priority counts": {
			key: groupKey, group: podGroup(2, nil), pods: []*v1.Pod{member("a", priority(10)), member("b", priority(-3)), member("c", priority(-9), phase(v1.PodSucceeded))},
			want: Gang{UID: "uid-g", Minimum: 2, Priority: -3}, wantComplete: true,
		},
		"annotations": {
			key: plainKey, pods: pair(plain("2")), want: Gang{Minimum: 2, Size: 2}, wantComplete: true,
		},
		"annotations without size": {
			key: plainKey, pods: pair(plain("2"), func(p *v1.Pod) { delete(p.Annotations, GangSizeKey) }),
			want:    Gang{Minimum: 1},
			wantErr: "Pod ns/a: metadata.annotations[nvtopo.dev/gang-size]: is missing: it says how many pods the gang has",
		},
		"annotations whose size is no number": {
			key: plainKey, pods: pair(plain("two")), want: Gang{Minimum: 1},
			wantErr: `Pod ns/a: metadata.annotations[nvtopo.dev/gang-size]: "two": want a number of pods`,
		},
		"members that do not agree on their number": {
			key: plainKey, pods: []*v1.Pod{member("a", plain("1")), member("b", plain("3")), member("c", plain("4"))},
			want:         Gang{Minimum: 1, Size: 1},
			wantWarn:     `Pod ns/b: metadata.annotations[nvtopo.dev/gang-size]: "3", but "1" of Pod ns/a counts`,
			wantComplete: true,
		},
		"a gang without name": {
			key: Key{SourceAnnotation, "ns", ""}, pods: pair(plain("2"), annotate(GangKey, "")),
			want: Gang{Minimum: 2, Size: 2}, wantErr: "Pod ns/a: metadata.annotations[nvtopo.dev/gang]: the name is empty",
		},
		"a gang with a strange name": {
			key: Key{SourceAnnotation, "ns", "a/\u202eb"}, pods: pair(plain("2"), annotate(GangKey, "a/\u202eb")),
			want: Gang{Minimum: 2, Size: 2}, wantErr: `Pod ns/a: metadata.annotations[nvtopo.dev/gang]: "a/\u202eb": want letters`,
		},
		"Kueue's pod group": {
			key: kueueKey, pods: pair(kueue("2")), want: Gang{Minimum: 2, Size: 2, Admitted: true}, wantComplete: true,
		},
		"Kueue's pod group without number": {
			key: kueueKey, pods: pair(kueue("")), want: Gang{Minimum: 1, Admitted: true},
			wantErr: `Pod ns/a: metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: "": want a number of pods`,
		},
		"members that ended are not missed": {
			key: groupKey, group: podGroup(2, nil), pods: []*v1.Pod{member("a", of("job")), member("b", of("job"), phase(v1.PodSucceeded))},
			want: Gang{UID: "uid-g", Minimum: 2}, wantComplete: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := Read(tc.key, tc.group, tc.pods)
			checkMessages(t, g, tc.wantErr, tc.wantWarn)
			if g.Complete() != tc.wantComplete {
				t.Errorf("complete: %t, want %t", g.Complete(), tc.wantComplete)
			}
			tc.want.Key = tc.key
			got := *g
			got.Members, got.Err, got.Warnings = Members{}, nil, nil
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Gang{}, field{})); diff != "" {
				t.Errorf("(-want,+got)\n%s", diff)
			}
		})
	}
	if g := Read(groupKey, nil, nil); !errors.Is(g.Err, ErrNoGroup) || g.Complete() {
		t.Errorf("%v, want ErrNoGroup", g.Err)
	}
}

func TestMemberWishes(t *testing.T) {
	tests := map[string]struct {
		group    texts
		pods     []*v1.Pod
		want     Wishes
		wantErr  string
		wantWarn string
	}{
		"the group's count": {
			group: texts{RequiredKey: "spine"}, pods: []*v1.Pod{member("a", annotate(RequiredKey, "rack"))}, want: Wishes{Required: "spine"},
		},
		"what the group leaves open members say": {
			group: texts{RequiredKey: "spine"}, pods: []*v1.Pod{member("a", annotate(SegmentSizeKey, "2"))}, want: Wishes{Required: "spine", SegmentSize: 2},
		},
		"a launcher without wishes": {
			pods: []*v1.Pod{member("z", label(kubeflowRoleLabel, "launcher")), member("a", annotate(RequiredKey, "rack"))}, want: Wishes{Required: "rack"},
		},
		"the first by rank counts, and the others are named": {
			pods:     []*v1.Pod{member("a", index(1), annotate(RequiredKey, "rack")), member("b", index(0), annotate(RequiredKey, "spine"))},
			want:     Wishes{Required: "spine"},
			wantWarn: `Pod ns/a: metadata.annotations[nvtopo.dev/required-topology]: "rack", but "spine" of Pod ns/b counts`,
		},
		"a bad wish of a member": {
			pods: []*v1.Pod{member("a", annotate(PatienceKey, "-1s"))}, wantErr: `Pod ns/a: metadata.annotations[nvtopo.dev/placement-patience]: "-1s": want a duration`,
		},
		"an annotation that will have been meant for us": {
			pods: []*v1.Pod{member("a", annotate("nvtopo.dev/required-toplogy", "rack"))}, wantWarn: "Pod ns/a: metadata.annotations[nvtopo.dev/required-toplogy]: is no annotation of a pod",
		},
		"annotations of a single pod are known": {
			pods: []*v1.Pod{member("a", annotate("nvtopo.dev/min-link", "NV4"), annotate("nvtopo.dev/gpu-ids.main", "GPU-0"), annotate(PlacementKey, "x"), bound(0))},
		},
		"near of a member": {pods: []*v1.Pod{member("a", annotate(NearKey, "h"))}, wantWarn: "is not for pods that are of a gang"},
		"two gangs at once": {
			pods: []*v1.Pod{member("a", annotate(GangKey, "h"))}, wantWarn: "Pod ns/a: metadata.annotations[nvtopo.dev/gang]: does not count beside PodGroup ns/g",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := Read(groupKey, podGroup(1, tc.group), tc.pods)
			if diff := cmp.Diff(tc.want, g.Wishes); diff != "" {
				t.Errorf("wishes (-want,+got)\n%s", diff)
			}
			checkMessages(t, g, tc.wantErr, tc.wantWarn)
		})
	}
}

func TestKueueTopology(t *testing.T) {
	const rack = "cloud.example.com/rack"
	selected := func(key string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = texts{key: "x"} }
	}
	gated := func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueueTopologyGate}} }
	tests := map[string]struct {
		change       []func(*v1.Pod)
		want         Wishes
		wantPinned   bool
		wantAdmitted bool
		wantErr      string
		wantWarn     string
	}{
		"required":              {change: []func(*v1.Pod){annotate(kueueRequiredKey, rack)}, want: Wishes{Required: rack}},
		"preferred":             {change: []func(*v1.Pod){annotate(kueuePreferredKey, rack)}, want: Wishes{Preferred: rack}},
		"slices":                {change: []func(*v1.Pod){annotate(kueueSliceKey, rack), annotate(kueueSliceSizeKey, "2")}, want: Wishes{SegmentSize: 2, SegmentLevel: rack, SegmentRequired: true}},
		"slices without size":   {change: []func(*v1.Pod){annotate(kueueSliceKey, rack)}, wantWarn: "is not read without kueue.x-k8s.io/podset-slice-size"},
		"a size without slices": {change: []func(*v1.Pod){annotate(kueueSliceSizeKey, "2")}},
		"our wish counts":       {change: []func(*v1.Pod){annotate(kueueRequiredKey, rack), annotate(RequiredKey, "spine")}, want: Wishes{Required: "spine"}},
		"our segments count": {
			change: []func(*v1.Pod){annotate(kueueSliceKey, rack), annotate(kueueSliceSizeKey, "2"), annotate(SegmentSizeKey, "4")}, want: Wishes{SegmentSize: 4},
		},
		"a level that cannot be read":                        {change: []func(*v1.Pod){annotate(kueueRequiredKey, "a b")}, wantErr: "Pod ns/a: metadata.annotations[kueue.x-k8s.io/podset-required-topology]"},
		"pods that wait for Kueue's domains":                 {change: []func(*v1.Pod){annotate(kueueRequiredKey, rack), gated}, wantPinned: true},
		"pods that have them":                                {change: []func(*v1.Pod){annotate(kueueRequiredKey, rack), selected(rack)}, wantPinned: true},
		"pods that have their host":                          {change: []func(*v1.Pod){annotate(kueuePreferredKey, rack), selected(v1.LabelHostname)}, wantPinned: true},
		"pods of Kueue's topology":                           {change: []func(*v1.Pod){annotate(kueueRequiredKey, rack), label(kueueTASLabel, "true")}, wantPinned: true},
		"a selector of the user's":                           {change: []func(*v1.Pod){annotate(kueueRequiredKey, rack), selected("zone")}, want: Wishes{Required: rack}},
		"a pod of a job that Kueue admitted is not patient":  {change: []func(*v1.Pod){label(kueuePodSetLabel, "main"), annotate(StrategyKey, "same-switch")}, want: Wishes{Strategy: fabric.StrategyCommunicationHeavy}, wantAdmitted: true},
		"and says so to those who ask for it":                {change: []func(*v1.Pod){annotate(kueueWorkloadKey, "w"), annotate(PatienceKey, "1m")}, wantAdmitted: true, wantWarn: "a gang that Kueue has admitted does not wait"},
		"a pod that Kueue manages":                           {change: []func(*v1.Pod){label(kueueManagedLabel, "true"), annotate(PatienceKey, "1m")}, wantAdmitted: true, wantWarn: "does not wait"},
		"a pod that asks for patience and has nothing of it": {change: []func(*v1.Pod){annotate(PatienceKey, "1m")}, want: Wishes{Patience: time.Minute}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := Read(groupKey, podGroup(1, nil), []*v1.Pod{member("a", tc.change...)})
			if diff := cmp.Diff(tc.want, g.Wishes); diff != "" {
				t.Errorf("wishes (-want,+got)\n%s", diff)
			}
			if g.Pinned != tc.wantPinned || g.Admitted != tc.wantAdmitted {
				t.Errorf("pinned %t, admitted %t, want %t, %t", g.Pinned, g.Admitted, tc.wantPinned, tc.wantAdmitted)
			}
			checkMessages(t, g, tc.wantErr, tc.wantWarn)
		})
	}
}

func TestFabricWishes(t *testing.T) {
	levels := []Level{{"spine", "example.com/spine"}, {"rack", "topology.kubernetes.io/rack"}}
	tests := map[string]struct {
		group   texts
		kueue   texts
		want    Wishes
		wantErr string
	}{
		"names stay": {group: texts{RequiredKey: "spine", PreferredKey: "rack"}, want: Wishes{Required: "spine", Preferred: "rack"}},
		"labels become names": {
			group: texts{SpreadOverKey: "topology.kubernetes.io/rack", RequiredKey: "example.com/spine"}, want: Wishes{Required: "spine", SpreadOver: "rack"},
		},
		"levels that every fabric has":   {group: texts{RequiredKey: "cluster", PreferredKey: "node"}, want: Wishes{Required: "cluster", Preferred: "node"}},
		"the label of a node":            {group: texts{PreferredKey: v1.LabelHostname}, want: Wishes{Preferred: "node"}},
		"a level of segments":            {group: texts{SegmentSizeKey: "2", PreferredSegmentKey: "topology.kubernetes.io/rack"}, want: Wishes{SegmentSize: 2, SegmentLevel: "rack"}},
		"a level that there is not":      {group: texts{RequiredKey: "block"}, wantErr: `PodGroup ns/g: metadata.annotations[nvtopo.dev/required-topology]: the fabric has no level "block"`},
		"also if it is only preferred":   {group: texts{PreferredKey: "block"}, wantErr: `[nvtopo.dev/preferred-topology]: the fabric has no level "block"`},
		"one that Kueue's users require": {kueue: texts{kueueRequiredKey: "cloud/block"}, wantErr: `Pod ns/a: metadata.annotations[kueue.x-k8s.io/podset-required-topology]: the fabric has no level`},
		"one that Kueue's users prefer":  {kueue: texts{kueuePreferredKey: "cloud/block"}},
		"Kueue's level":                  {kueue: texts{kueueRequiredKey: "topology.kubernetes.io/rack"}, want: Wishes{Required: "rack"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := member("a")
			maps.Copy(pod.Annotations, tc.kueue)
			g := Read(groupKey, podGroup(1, tc.group), []*v1.Pod{pod})
			checkMessages(t, g, "", "")
			before := g.Wishes
			got, err := g.WishesIn(levels)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want,+got)\n%s", diff)
			}
			if g.Wishes != before {
				t.Errorf("the gang changed from %+v to %+v", before, g.Wishes)
			}
			var r fabric.Request
			got.Apply(&r)
			if r.Required != got.Required || r.SegmentLevel != got.SegmentLevel || r.SpreadOver != got.SpreadOver || r.Preferred != got.Preferred {
				t.Errorf("%+v of %+v", r, got)
			}
		})
	}
}

// TestUnevenSegments: segments that do not divide the members are refused.
func TestUnevenSegments(t *testing.T) {
	for name, tc := range map[string]struct {
		wishes  Wishes
		members int
		want    int // members of a segment
	}{
		"segments that divide them are kept":                   {wishes: Wishes{SegmentSize: 4}, members: 8, want: 4},
		"preferred ones are given up for a replacement":        {wishes: Wishes{SegmentSize: 4}, members: 9, want: 0},
		"required ones are kept, and the planner refuses them": {wishes: Wishes{SegmentSize: 4, SegmentRequired: true}, members: 9, want: 4},
		"no segments are asked for":                            {members: 9, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := fabric.Request{Members: make([]fabric.Member, tc.members)}
			if tc.wishes.Apply(&r); r.SegmentSize != tc.want {
				t.Errorf("segments of %d, want %d", r.SegmentSize, tc.want)
			}
		})
	}
}

// A gang that is read twice is the same, in whatever order its pods come.
func TestPodOrder(t *testing.T) {
	var pods []*v1.Pod
	for i := range 12 {
		pods = append(pods, member(fmt.Sprintf("p-%d", i), index(i%9), annotate(RequiredKey, fmt.Sprint("level-", i%3))))
	}
	want := Read(groupKey, podGroup(4, nil), pods)
	slices.Reverse(pods)
	got := Read(groupKey, podGroup(4, nil), pods)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Gang{}, field{})); diff != "" {
		t.Errorf("(-want,+got)\n%s", diff)
	}
	if len(want.Warnings) == 0 || len(want.Warnings) > maxMessages+1 {
		t.Errorf("%d warnings", len(want.Warnings))
	}
}

func BenchmarkRead(b *testing.B) {
	var pods []*v1.Pod
	for i := range 1000 {
		pods = append(pods, member(fmt.Sprintf("p-%d", i), index(i)))
	}
	group := podGroup(1000, texts{StrategyKey: "communication-heavy", RequiredKey: "spine"})
	b.ReportAllocs()
	for b.Loop() {
		if g := Read(groupKey, group, pods); !g.Complete() {
			b.Fatal(g.Err)
		}
	}
}
