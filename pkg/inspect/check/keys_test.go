// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// TestIgnoredKeys: keys of pods that nothing reads are notes, one for the pods of a namespace that have the same.
func TestIgnoredKeys(t *testing.T) {
	const misspelled, said = "nvtopo.dev/topology-polcy", "Annotation nvtopo.dev/topology-polcy is not known; nearest is nvtopo.dev/topology-policy; the pod is scheduled without it"
	for name, tc := range map[string]struct {
		pods func() []v1.Pod
		want []string // objects, field and message of the notes
	}{
		"a pod that waits": {
			pods: func() []v1.Pod {
				return []v1.Pod{*testobj.Pod("p").Namespace("team").Scheduler(DefaultProfile).GPUs(1).Annotation(misspelled, "x").Obj()}
			},
			want: []string{"Pod team/p: metadata.annotations[nvtopo.dev/topology-polcy]: " + said},
		},
		"a label": {
			pods: func() []v1.Pod {
				return []v1.Pod{*testobj.Pod("p").Namespace("team").Scheduler(DefaultProfile).Label("nvtopo.dev/gang", "g").Obj()}
			},
			want: []string{"Pod team/p: metadata.labels[nvtopo.dev/gang]: Label nvtopo.dev/gang is not known; nearest is the annotation nvtopo.dev/gang; the pod is scheduled without it"},
		},
		"a profile that is published": {
			pods: func() []v1.Pod {
				return []v1.Pod{*testobj.Pod("p").Namespace("team").Scheduler("ours").Annotation(misspelled, "x").Obj()}
			},
			want: []string{"Pod team/p: metadata.annotations[nvtopo.dev/topology-polcy]: " + said},
		},
		"pods of another scheduler, pods that have ended and pods without such keys": {
			pods: func() []v1.Pod {
				return []v1.Pod{
					*testobj.Pod("other").Scheduler("default-scheduler").Annotation(misspelled, "x").Obj(),
					*testobj.Pod("ended").Scheduler(DefaultProfile).Annotation(misspelled, "x").Phase(v1.PodSucceeded).Obj(),
					*testobj.Pod("right").Scheduler(DefaultProfile).Annotation("nvtopo.dev/topology-policy", "restricted").Obj(),
				}
			},
		},
		"alike pods of two namespaces": {
			pods: func() (out []v1.Pod) {
				for i := range 12 {
					out = append(out, *testobj.Pod(fmt.Sprintf("p%02d", 11-i)).Namespace([]string{"a", "b"}[i%2]).Scheduler(DefaultProfile).Annotation(misspelled, "x").Obj())
				}
				return out
			},
			want: []string{
				"Pod a/p01, Pod a/p03, Pod a/p05: metadata.annotations[nvtopo.dev/topology-polcy]: " + said + "; 3 more pods of namespace a have the same",
				"Pod b/p00, Pod b/p02, Pod b/p04: metadata.annotations[nvtopo.dev/topology-polcy]: " + said + "; 3 more pods of namespace b have the same",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			c.Published = &diagnosis.Profiles{Profiles: []diagnosis.Profile{{Name: "ours"}}}
			c.Pods = tc.pods()
			var got []string
			for _, v := range Examine(c.World).Notes {
				if v.Invariant != IgnoredKey {
					continue
				}
				var names []string
				for _, o := range v.Objects {
					o.UID = ""
					names = append(names, o.String())
				}
				got = append(got, strings.Join(names, ", ")+": "+v.Field+": "+v.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

// TestIgnoredKeysBounded: however many pods have keys of their own that nothing reads, there are few notes.
func TestIgnoredKeysBounded(t *testing.T) {
	c := newTestEnv(t)
	for i := range 100 {
		c.Pods = append(c.Pods, *testobj.Pod(fmt.Sprintf("p%02d", i)).UID(strconv.Itoa(i)).Scheduler(DefaultProfile).Annotation(fmt.Sprintf("nvtopo.dev/k%d", i), "x").Obj())
	}
	notes := Examine(c.World).Notes
	if len(notes) != maxKeyNotes || !strings.HasSuffix(notes[len(notes)-1].Message, "; 80 more pods have other keys that nothing reads: nvtopo explain names them pod by pod") {
		t.Errorf("%d notes, the last %v", len(notes), notes[len(notes)-1])
	}
}
