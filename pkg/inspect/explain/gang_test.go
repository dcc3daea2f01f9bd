// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestIncompleteGang: a gang that lacks members, and whose members could never be placed, hears both.
func TestIncompleteGang(t *testing.T) {
	const missing, first = "PodGroup team/train has 2 of the 3 members that start together", "create the missing members, or lower the number that starts together"
	for name, tc := range map[string]struct {
		gpus       int // of each
		key, value string
		want, next string // beside that members are missing
		lacks      []Cause
	}{
		"they fit": {gpus: 2, key: podrequest.MinBandwidthKey, value: "20"},
		"no node has the bandwidth": {
			gpus: 2, key: podrequest.MinBandwidthKey, value: "400", lacks: []Cause{causeOf(placement.LowBandwidth)},
			want: "; and the gang can never fit in this cluster because of nvtopo.dev/min-bandwidth: 400 of the members",
			next: "; and set nvtopo.dev/min-bandwidth to 50GB/s (kubectl -n team annotate --overwrite pod asks second nvtopo.dev/min-bandwidth=50GB/s)",
		},
		"no node has the model": {
			gpus: 2, key: podrequest.GPUModelKey, value: "H100", lacks: []Cause{causeOf(placement.FewSuitableGPUs)},
			want: "; and the gang can never fit in this cluster because of nvtopo.dev/gpu-model: H100 of the members",
			next: "; and leave out nvtopo.dev/gpu-model (kubectl -n team annotate --overwrite pod asks second nvtopo.dev/gpu-model-)",
		},
		"there are too few GPUs for those that there are": {
			gpus: 6, lacks: []Cause{FewGPUs},
			want: "; and the gang can never fit in this cluster: it asks 12 nvidia.com/gpu",
			next: "; and run smaller members, or add nodes",
		},
		"no node has the bandwidth, and there are too few GPUs": {
			gpus: 6, key: podrequest.MinBandwidthKey, value: "400", lacks: []Cause{causeOf(placement.LowBandwidth), FewGPUs},
			want: "; and the gang can never fit in this cluster because of nvtopo.dev/min-bandwidth: 400 of the members, and also of its size",
			next: "; and set nvtopo.dev/min-bandwidth to 25GB/s (kubectl -n team annotate --overwrite pod asks second nvtopo.dev/min-bandwidth=25GB/s), with which there is room for 1 member when no other pod runs, or",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			var members []*v1.Pod
			for _, name := range []string{"asks", "second"} {
				p := pod(name, tc.gpus)
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
			said := missing + tc.want
			if e.Cause != GangIncomplete || !slices.Equal(e.Lacks, tc.lacks) || !strings.HasPrefix(e.Reason, said) || tc.want == "" && e.Reason != said {
				t.Errorf("%s, lacks %v: %q\nwant GangIncomplete, %v: %q", e.Cause, e.Lacks, e.Reason, tc.lacks, said)
			}
			if !strings.HasPrefix(e.Next, first+tc.next) || tc.next == "" && e.Next != first {
				t.Errorf("next step %q, want %q", e.Next, first+tc.next)
			}
		})
	}
}

// TestGangWithoutSize: a gang of which nobody says how large it is hears how to say it, and is not said to be whole.
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
			next: "set nvtopo.dev/gang-size to how many members start together (kubectl -n team annotate --overwrite pod asks other nvtopo.dev/gang-size=2)",
		},
		"pods of a Job": {
			pods: []*v1.Pod{member("asks").Owner("Job", "train", "j").Obj()},
			want: "no nvtopo.dev/gang-size is given (members there: 1): ",
			next: "set nvtopo.dev/gang-size to how many members start together (in the pod template of Job team/train, which has to be made anew, as a Job's template cannot be changed)",
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

// TestSegmentsBehindLauncher: segments are of the workers alone, as for the scheduler, whatever rank the launcher
// has. With its rank they were cut after the first and the third worker, and the gang was said to have a place.
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

// TestOthersAsk: of several names of an annotation the value counts that the scheduler reads, and an empty value is
// one.
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
