// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

func gangNamed(name string) gangrequest.Key {
	return gangrequest.Key{Source: gangrequest.SourceAnnotation, Namespace: "ns", Name: name}
}

func podsOf(gang string, numbers ...int) (pods []*v1.Pod) {
	for _, i := range numbers {
		pods = append(pods, schedtest.Pod(fmt.Sprintf("%s-%d", gang, i)).Obj())
	}
	return pods
}

// told takes n reasons from the queue.
func told(s *sayings, n int) (out []string) {
	for range n {
		_, pod, why, ok := s.take()
		if !ok {
			break
		}
		out = append(out, pod.Name+" "+why)
	}
	return out
}

// TestNoticeTurns: gangs take turns in writing reasons.
func TestNoticeTurns(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(s *sayings) []string
		want []string
	}{
		"a small gang need not wait for a large one": {
			func(s *sayings) []string {
				s.put(gangNamed("a"), podsOf("a", 0, 1, 2), "x")
				s.put(gangNamed("b"), podsOf("b", 0), "y")
				return told(s, 9)
			},
			[]string{"a-0 x", "b-0 y", "a-1 x", "a-2 x"},
		},
		"a later reason comes first to those that were not reached": {
			func(s *sayings) []string {
				s.put(gangNamed("a"), podsOf("a", 0, 1, 2), "x")
				out := told(s, 2)
				s.put(gangNamed("a"), podsOf("a", 0, 1, 2), "y")
				return append(out, told(s, 9)...)
			},
			[]string{"a-0 x", "a-1 x", "a-2 y", "a-0 y", "a-1 y"},
		},
		"the same reason for those that are left is no new": {
			func(s *sayings) []string {
				s.put(gangNamed("a"), podsOf("a", 0, 1, 2), "x")
				out := told(s, 1)
				s.put(gangNamed("a"), podsOf("a", 1, 2), "x")
				return append(out, told(s, 9)...)
			},
			[]string{"a-0 x", "a-1 x", "a-2 x"},
		},
		"a gang that goes on says nothing more": {
			func(s *sayings) []string {
				s.put(gangNamed("a"), podsOf("a", 0, 1), "x")
				out := told(s, 1)
				s.forget(gangNamed("a"))
				return append(out, told(s, 9)...)
			},
			[]string{"a-0 x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, tc.do(newSayings())); diff != "" {
				t.Errorf("told (-want,+got)\n%s", diff)
			}
		})
	}
}

// TestReasonBacklog: reasons that change do not pile up. 100 gangs of 1000 members report a new reason six
// times before any is written: one reason for each member is queued.
func TestReasonBacklog(t *testing.T) {
	t.Parallel()
	const gangs, members = 100, 1000
	numbers := make([]int, members)
	for i := range numbers {
		numbers[i] = i
	}
	s := newSayings()
	for round := range 6 {
		for i := range gangs {
			name := fmt.Sprint("g", i)
			s.put(gangNamed(name), podsOf(name, numbers...), fmt.Sprint("reason ", round))
		}
	}
	all := told(s, 10*gangs*members)
	if len(all) != gangs*members {
		t.Errorf("%d members are told, want %d", len(all), gangs*members)
	}
	for _, text := range all {
		if !strings.Contains(text, "reason 5") {
			t.Fatalf("told an old reason: %s", text)
		}
	}
}
