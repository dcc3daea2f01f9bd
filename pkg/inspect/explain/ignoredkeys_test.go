// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestIgnoredKeys: an explanation of a pod repeats what the event KeyIgnored says of its keys.
func TestIgnoredKeys(t *testing.T) {
	const (
		misspelled = "nvtopo.dev/topology-polcy"
		want       = "Annotation nvtopo.dev/topology-polcy is not known; nearest is nvtopo.dev/topology-policy; the pod is scheduled without it"
	)
	for name, tc := range map[string]struct {
		change func(*v1.Pod)
		want   string
	}{
		"a pod that waits": {func(p *v1.Pod) { p.Annotations[misspelled] = "restricted" }, want},
		"a pod that has a node": {func(p *v1.Pod) {
			p.Annotations[misspelled] = "restricted"
			p.Spec.NodeName = "n0"
		}, want},
		"a pod whose annotation cannot be read besides": {func(p *v1.Pod) {
			p.Annotations[misspelled] = "restricted"
			p.Annotations["nvtopo.dev/min-link"] = "fast"
		}, want},
		"a label": {
			func(p *v1.Pod) { p.Labels["nvtopo.dev/min-link"] = "NV4" },
			"Label nvtopo.dev/min-link is not known; nearest is the annotation nvtopo.dev/min-link; the pod is scheduled without it",
		},
		"a pod with no such key": {func(p *v1.Pod) { p.Annotations["nvtopo.dev/topology-policy"] = "restricted" }, ""},
		"a pod of another scheduler": {func(p *v1.Pod) {
			p.Annotations[misspelled] = "restricted"
			p.Spec.SchedulerName = "default-scheduler"
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			p := pod("asks", 2).Owner("Job", "job", "job").Obj()
			tc.change(p)
			w.waits(p)
			w.Jobs = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "job", UID: "job"}}}
			for kind, of := range map[string]func(*World, string, string) (*Explanation, error){"asks": Pod, "job": Job} {
				e, err := of(w.World, "team", kind)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, e.IgnoredKeys); diff != "" {
					t.Errorf("%s (-want +got)\n%s", kind, diff)
				}
			}
		})
	}
}
