// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRanks(t *testing.T) {
	jobSet := func(role string, global, completion int) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Labels[jobSetNameLabel], p.Labels[jobSetGlobalLabel] = role, strconv.Itoa(global)
			index(completion)(p)
		}
	}
	kubeflow := func(role string, n int) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Labels[kubeflowReplicaLabel], p.Labels[kubeflowIndexLabel] = role, strconv.Itoa(n) }
	}
	tests := map[string]struct {
		pods   []*v1.Pod
		byName bool
		want   string // rank:name
		warns  string
	}{
		"names count numbers as people do": {pods: []*v1.Pod{member("p-10"), member("p-9"), member("p-0")}, want: "0:p-0 1:p-9 2:p-10"},
		"the byte order of names":          {pods: []*v1.Pod{member("p-9", index(0)), member("p-10", index(1)), member("p-0", index(2))}, byName: true, want: "0:p-0 1:p-10 2:p-9"},
		"the completion index": {
			pods: []*v1.Pod{member("a", index(2)), member("b", index(0)), member("c", annotate("batch.kubernetes.io/job-completion-index", "1"))},
			want: "0:b 1:c 2:a",
		},
		"a hole stays free":               {pods: []*v1.Pod{member("a", index(3)), member("b", index(0)), member("c", index(1))}, want: "0:b 1:c 3:a"},
		"a pod without index comes after": {pods: []*v1.Pod{member("a"), member("b", index(1)), member("c", index(0))}, want: "0:c 1:b 2:a"},
		"of two with one index the later by name comes last": {
			pods: []*v1.Pod{member("a", index(0)), member("c", index(1)), member("b", index(1)), member("d", index(2))},
			want: "0:a 1:b 2:d 3:c", warns: "Pod ns/c has the index 1 of Pod ns/b",
		},
		"an index that is none counts as missing": {pods: []*v1.Pod{member("a", label(podIndexLabel, "-1")), member("b", label(podIndexLabel, "0"))}, want: "0:b 1:a"},
		"an index beyond all ranks":               {pods: []*v1.Pod{member("a", index(1048576)), member("b", index(1))}, want: "1:b 2:a"},
		"a StatefulSet":                           {pods: []*v1.Pod{member("s-1", label(podIndexLabel, "1")), member("s-0", label(podIndexLabel, "0"))}, want: "0:s-0 1:s-1"},
		"a LeaderWorkerSet, whose leader's pod index is its group's": {
			pods: []*v1.Pod{
				member("l-3-1", label(lwsWorkerLabel, "1"), label(podIndexLabel, "1"), label(lwsGroupLabel, "3")),
				member("l-3", label(lwsWorkerLabel, "0"), label(podIndexLabel, "3"), label(lwsGroupLabel, "3")),
			},
			want: "0:l-3 1:l-3-1",
		},
		"two groups of a LeaderWorkerSet": {
			pods: []*v1.Pod{
				member("l-1", label(lwsWorkerLabel, "0"), label(lwsGroupLabel, "1")), member("l-0-1", label(lwsWorkerLabel, "1"), label(lwsGroupLabel, "0")),
				member("l-0", label(lwsWorkerLabel, "0"), label(lwsGroupLabel, "0")), member("l-1-1", label(lwsWorkerLabel, "1"), label(lwsGroupLabel, "1")),
			},
			want: "0:l-0 1:l-0-1 2:l-1 3:l-1-1",
		},
		"a JobSet of several Jobs": {
			pods: []*v1.Pod{member("w-1-0", jobSet("w", 1, 0)), member("w-0-1", jobSet("w", 0, 1)), member("w-0-0", jobSet("w", 0, 0))},
			want: "0:w-0-0 1:w-0-1 2:w-1-0",
		},
		"a JobSet's launcher comes first, wherever it stands": {
			pods: []*v1.Pod{member("node-0-0", jobSet("node", 0, 0)), member("launcher", jobSet("launcher", 1, 0)), member("node-0-1", jobSet("node", 0, 1))},
			want: "0:launcher 1:node-0-0 2:node-0-1",
		},
		"a JobSet's Jobs are in its own order, not that of their names": {
			pods: []*v1.Pod{member("a-0-0", jobSet("a", 1, 0)), member("b-0-0", jobSet("b", 0, 0))}, want: "0:b-0-0 1:a-0-0",
		},
		"a JobSet without global indices": {
			pods: []*v1.Pod{
				member("b", label(jobSetNameLabel, "w"), label(jobSetIndexLabel, "1"), index(0)),
				member("a", label(jobSetNameLabel, "w"), label(jobSetIndexLabel, "0"), index(0)),
			},
			want: "0:a 1:b",
		},
		"Kubeflow's master before its workers": {
			pods: []*v1.Pod{member("j-worker-0", kubeflow("worker", 0)), member("j-worker-1", kubeflow("worker", 1)), member("j-master-0", kubeflow("master", 0))},
			want: "0:j-master-0 1:j-worker-0 2:j-worker-1",
		},
		"a launcher without index": {
			pods: []*v1.Pod{
				member("j-worker-0", kubeflow("worker", 0), label(kubeflowRoleLabel, "worker")), member("z-launcher", label(kubeflowRoleLabel, "launcher")),
				member("j-worker-1", kubeflow("worker", 1), label(kubeflowRoleLabel, "worker")),
			},
			want: "0:z-launcher 1:j-worker-0 2:j-worker-1",
		},
		"two Jobs of one gang": {
			pods: []*v1.Pod{
				member("x", label("batch.kubernetes.io/job-name", "j-2"), index(0)), member("y", label("batch.kubernetes.io/job-name", "j-1"), index(0)),
			},
			want: "0:y 1:x",
		},
		"Kueue's index": {pods: []*v1.Pod{member("a", label(kueueGroupIndex, "1")), member("b", label(kueueGroupIndex, "0"))}, want: "0:b 1:a"},
		"a replacement takes the rank of its index": {
			pods: []*v1.Pod{member("a", index(0), bound(0)), member("new", index(2)), member("d", index(3), bound(3))}, want: "0:a 2:new 3:d",
		},
		"a replacement without index takes a free rank": {
			pods: []*v1.Pod{member("a", bound(0)), member("zz"), member("c", bound(2))}, want: "0:a 2:c 3:zz",
		},
		"ranks that are written stay, whatever the indices say": {
			pods: []*v1.Pod{member("a", index(0), bound(1)), member("b", index(1), bound(0)), member("c", index(2))}, want: "0:b 1:a 3:c",
		},
		"one rank is written on two": {
			pods: []*v1.Pod{member("a", bound(0)), member("b", bound(0)), member("c", bound(1))}, want: "0:a 1:c 2:b",
		},
		"a rank on a pod without node does not count": {pods: []*v1.Pod{member("a", annotate(RankKey, "7")), member("b")}, want: "0:a 1:b"},
		"the rank of one that succeeded is taken":     {pods: []*v1.Pod{member("a", bound(0), of("job"), phase(v1.PodSucceeded)), member("b", of("job"))}, want: "1:b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := membersOf(tc.pods, tc.byName)
			var got []string
			for i, p := range m.Live {
				got = append(got, fmt.Sprintf("%d:%s", m.Ranks[i], p.Name))
			}
			if g := strings.Join(got, " "); g != tc.want {
				t.Errorf("%s, want %s", g, tc.want)
			}
			if w := strings.Join(m.Warnings, "; "); !strings.HasPrefix(w, tc.warns) || (w != "") != (tc.warns != "") {
				t.Errorf("warnings %q, want %q", w, tc.warns)
			}
		})
	}
}

func TestCountedMembers(t *testing.T) {
	deleted := func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	made := func(s int64) func(*v1.Pod) {
		return func(p *v1.Pod) { p.CreationTimestamp = metav1.Unix(s, 0) }
	}
	ended := func(s int64) func(*v1.Pod) {
		return func(p *v1.Pod) {
			first := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Unix(s-1, 0)}}
			last := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Unix(s, 0)}}
			p.Status.ContainerStatuses = []v1.ContainerStatus{{State: first}, {State: last}, {}}
		}
	}
	twice := member("b")
	tests := map[string]struct {
		pods      []*v1.Pod
		wantLive  []string
		wantEnded []string
	}{
		"pods that end are none": {pods: []*v1.Pod{member("a"), member("b", deleted), member("c", deleted, phase(v1.PodSucceeded))}, wantLive: []string{"a"}},
		"a pod counts once":      {pods: []*v1.Pod{twice, member("a"), twice}, wantLive: []string{"a", "b"}},
		"one that succeeded counts for others of its controller": {
			pods:     []*v1.Pod{member("a", of("job")), member("b", of("job"), phase(v1.PodSucceeded))},
			wantLive: []string{"a"}, wantEnded: []string{"b"},
		},
		"one that succeeded counts beside one that ran then": {
			pods:     []*v1.Pod{member("a", bound(0), made(10)), member("b", phase(v1.PodSucceeded), ended(11))},
			wantLive: []string{"a"}, wantEnded: []string{"b"},
		},
		"one that succeeded, nobody says when, counts beside one that runs": {
			pods:     []*v1.Pod{member("a", bound(0), made(10)), member("b", phase(v1.PodSucceeded))},
			wantLive: []string{"a"}, wantEnded: []string{"b"},
		},
		"one that succeeded in an earlier run does not count before a new one": {
			pods: []*v1.Pod{member("a", of("second")), member("b", of("first"), phase(v1.PodSucceeded))}, wantLive: []string{"a"},
		},
		"nor beside it": {
			pods:     []*v1.Pod{member("a", bound(0), of("second"), made(10)), member("b", of("first"), phase(v1.PodSucceeded), ended(9))},
			wantLive: []string{"a"},
		},
		"without a controller nothing says that it was the same run": {
			pods: []*v1.Pod{member("a"), member("b", phase(v1.PodSucceeded), ended(9))}, wantLive: []string{"a"},
		},
		"one that failed in an earlier run does not count": {
			pods: []*v1.Pod{member("a", bound(0), made(10)), member("b", phase(v1.PodFailed), ended(9))}, wantLive: []string{"a"},
		},
		"one that failed counts beside others":  {pods: []*v1.Pod{member("a", bound(0)), member("b", phase(v1.PodFailed))}, wantLive: []string{"a"}, wantEnded: []string{"b"}},
		"once none runs, the gang starts anew":  {pods: []*v1.Pod{member("a"), member("b", phase(v1.PodFailed))}, wantLive: []string{"a"}},
		"one whose index was taken counts once": {pods: []*v1.Pod{member("a", index(0), bound(0)), member("b", index(1)), member("old", index(1), phase(v1.PodFailed))}, wantLive: []string{"a", "b"}},
		"two failures of one index count once": {
			pods:     []*v1.Pod{member("a", index(0), bound(0)), member("b", index(1), phase(v1.PodFailed)), member("c", index(1), phase(v1.PodFailed))},
			wantLive: []string{"a"}, wantEnded: []string{"b"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := membersOf(tc.pods, false)
			if diff := cmp.Diff(tc.wantLive, names(m.Live)); diff != "" {
				t.Errorf("live (-want,+got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantEnded, names(m.Ended)); diff != "" {
				t.Errorf("ended (-want,+got)\n%s", diff)
			}
			if n := len(tc.wantLive) + len(tc.wantEnded); m.Count() != n {
				t.Errorf("count %d, want %d", m.Count(), n)
			}
		})
	}
}

func TestNeededExtra(t *testing.T) {
	tests := map[string]struct {
		pods                  []*v1.Pod
		minimum               int
		wantNeeded, wantExtra []int
	}{
		"a new gang": {
			pods: []*v1.Pod{member("0"), member("1"), member("2")}, minimum: 2, wantNeeded: []int{0, 1}, wantExtra: []int{2},
		},
		"a member below the minimum is replaced": {
			pods: []*v1.Pod{member("0", bound(0)), member("1"), member("2", bound(2))}, minimum: 3, wantNeeded: []int{1},
		},
		"a member above the minimum is an extra": {
			pods: []*v1.Pod{member("0", bound(0)), member("1"), member("2", bound(2))}, minimum: 2, wantExtra: []int{1},
		},
		"ended members count for the minimum": {
			pods:    []*v1.Pod{member("0", bound(0), phase(v1.PodSucceeded)), member("1", bound(1)), member("2", bound(2)), member("3")},
			minimum: 2, wantExtra: []int{2},
		},
		"below the minimum there is none": {pods: []*v1.Pod{member("0", bound(0))}, minimum: 2},
	}
	placed := func(p *v1.Pod) bool { return p.Spec.NodeName != "" }
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := membersOf(tc.pods, false)
			needed, extra := m.Split(tc.minimum, placed)
			if diff := cmp.Diff([][]int{tc.wantNeeded, tc.wantExtra}, [][]int{needed, extra}); diff != "" {
				t.Errorf("needed and extra (-want,+got)\n%s", diff)
			}
		})
	}
}

// TestRanksAfterDeaths: ranks survive deaths. The test binds, kills and replaces members at random: ranks
// are those of the job's own indices at any time, and without indices no rank changes once its member has
// a node.
func TestRanksAfterDeaths(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	for run := range 200 {
		indexed := run%2 == 0
		launcher := label(kubeflowReplicaLabel, "launcher")
		var pods []*v1.Pod
		add := func(i int) {
			p := member(fmt.Sprintf("%d-%d", i, r.Int()))
			switch {
			case i == 0:
				launcher(p)
			case indexed:
				index(i - 1)(p)
			}
			if indexed {
				p.Annotations["index"] = strconv.Itoa(i)
			}
			pods = append(pods, p)
		}
		for i := range 2 + r.IntN(8) {
			add(i)
		}
		bind := func(m *Members, share int) {
			for i, p := range m.Live {
				if p.Spec.NodeName == "" && r.IntN(share) == 0 {
					bound(m.Ranks[i])(p)
				}
			}
		}
		first := membersOf(pods, false)
		bind(&first, 1)
		for range 20 {
			at := 1 + r.IntN(len(pods)-1) // a launcher that dies leaves nothing to count from
			i, _ := strconv.Atoi(pods[at].Annotations["index"])
			pods = slices.Delete(pods, at, at+1)
			if r.IntN(3) > 0 || len(pods) < 2 {
				add(max(i, 1))
			}
			m := membersOf(pods, false)
			for k, p := range m.Live {
				if want, _ := RankOf(p); p.Spec.NodeName != "" && m.Ranks[k] != want {
					t.Fatalf("run %d: %s had rank %d and has %d", run, p.Name, want, m.Ranks[k])
				}
				if want := p.Annotations["index"]; indexed && FormatRank(m.Ranks[k]) != want {
					t.Fatalf("run %d: %s of index %s has rank %d", run, p.Name, want, m.Ranks[k])
				}
			}
			bind(&m, 2)
		}
	}
}
