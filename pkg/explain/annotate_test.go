// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// TestNextCommand: where another value of an annotation would do, the next step has the command that sets it, or
// the object whose template has it.
func TestNextCommand(t *testing.T) {
	const (
		never  = "set nvtopo.dev/min-bandwidth to 50GB/s"
		room   = ", with which there is room when no other pod runs, or add nodes that have more"
		linked = "ask for a lesser nvtopo.dev/min-link, or move those of the named pods that may be moved"
	)
	greedy := func(name string) *testobj.PodWrapper {
		return pod(name, 2).Annotation(podrequest.MinBandwidthKey, "400000")
	}
	member := func(name string) *v1.Pod {
		return greedy(name).Annotation(gangrequest.GangKey, "g").Annotation(gangrequest.GangSizeKey, "2").Obj()
	}
	linkless := func(w *testEnv) { // GPUs 0 and 5 of the cube have no link
		w.holds(t, "a", "n0", 1, 2, 3, 4, 6, 7)
	}
	for name, tc := range map[string]struct {
		pod     *v1.Pod
		arrange func(w *testEnv)
		want    string
	}{
		"a bare pod that can never fit": {
			pod: greedy("asks").Obj(), want: never + " (kubectl -n team annotate --overwrite pod asks nvtopo.dev/min-bandwidth=50GB/s)" + room,
		},
		"the pod of a Job": {
			pod:  greedy("asks").Owner("Job", "train", "j").Obj(),
			want: never + " (in the pod template of Job team/train, which has to be made anew, as a Job's template cannot be changed)" + room,
		},
		"the pod of a Deployment": {
			pod:  greedy("asks").Owner("ReplicaSet", "web-7d9f", "r").Obj(),
			want: never + " (in the pod template of ReplicaSet team/web-7d9f, or of the Deployment that made it)" + room,
		},
		"the pod of a StatefulSet": {
			pod:  greedy("asks").Owner("StatefulSet", "db", "s").Obj(),
			want: never + " (in the pod template of StatefulSet team/db)" + room,
		},
		"a bare member of a gang": {
			pod: member("asks"), arrange: func(w *testEnv) { w.waits(member("other")) }, want: never + room,
		},
		"a lesser link is free now": {
			pod: pod("asks", 2).Annotation(podrequest.MinLinkKey, "NVLINK").Obj(), arrange: linkless,
			want: linked + "; with nvtopo.dev/min-link SYS there is room now (kubectl -n team annotate --overwrite pod asks nvtopo.dev/min-link=SYS)",
		},
		"a lesser link is free now, for a pod of a Deployment": {
			pod: pod("asks", 2).Annotation(podrequest.MinLinkKey, "NVLINK").Owner("ReplicaSet", "web-7d9f", "r").Obj(), arrange: linkless,
			want: linked + "; with nvtopo.dev/min-link SYS there is room now (in the pod template of ReplicaSet team/web-7d9f, or of the Deployment that made it)",
		},
		"no value has room now": {
			pod: pod("asks", 2).Annotation(podrequest.MinLinkKey, "NVLINK").Obj(), arrange: func(w *testEnv) { w.holds(t, "a", "n0", 0, 1, 2, 3, 4, 5, 6, 7) },
			want: nextSteps[FewGPUs],
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			if tc.arrange != nil {
				tc.arrange(w)
			}
			w.waits(tc.pod)
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, e.Next); diff != "" {
				t.Errorf("%s: %s (-want +got)\n%s", e.Cause, e.Reason, diff)
			}
		})
	}
}
