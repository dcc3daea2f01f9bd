// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestIgnoredKeys: a pod gets one event for each version of its keys, and one of a gang's members with
// the same keys.
func TestIgnoredKeys(t *testing.T) {
	type notes = map[string]string
	pod := func(name string, n notes, change ...func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), Annotations: n}, Spec: v1.PodSpec{SchedulerName: "ours"}}
		for _, c := range change {
			c(p)
		}
		return p
	}
	onNode := func(p *v1.Pod) { p.Spec.NodeName = "n" }
	others := func(p *v1.Pod) { p.Spec.SchedulerName = "theirs" }
	wrong, worse, member := notes{"nvtopo.dev/x": ""}, notes{"nvtopo.dev/y": ""}, notes{"nvtopo.dev/x": "", "nvtopo.dev/gang": "g"}
	tests := map[string]struct {
		pods    []*v1.Pod
		standby bool // while the pods come
		want    []string
	}{
		"a good pod":                           {pods: []*v1.Pod{pod("a", notes{"nvtopo.dev/gang": "g"})}},
		"a pod of another scheduler":           {pods: []*v1.Pod{pod("a", wrong, others)}},
		"a pod with a bad key":                 {pods: []*v1.Pod{pod("a", wrong)}, want: []string{"a: Annotation nvtopo.dev/x is not known; the pod is scheduled without it"}},
		"a pod that changes elsewhere":         {pods: []*v1.Pod{pod("a", wrong), pod("a", notes{"nvtopo.dev/x": "", "b": ""})}, want: []string{"a: Annotation nvtopo.dev/x is not known; the pod is scheduled without it"}},
		"a pod that gets another bad key":      {pods: []*v1.Pod{pod("a", wrong), pod("a", worse)}, want: []string{"a: Annotation nvtopo.dev/y is not known; the pod is scheduled without it"}},
		"a pod that is corrected":              {pods: []*v1.Pod{pod("a", wrong), pod("a", nil)}},
		"members of a gang":                    {pods: []*v1.Pod{pod("a", member), pod("b", member)}, want: []string{"a: Annotation nvtopo.dev/x is not known; the pod is scheduled without it"}},
		"a pod that is bound at once":          {pods: []*v1.Pod{pod("a", wrong), pod("a", wrong, onNode)}, want: []string{"a: Annotation nvtopo.dev/x is not known; the pod is scheduled without it"}},
		"a pod that was bound before":          {pods: []*v1.Pod{pod("a", wrong, onNode)}},
		"a pod that waits until one leads":     {standby: true, pods: []*v1.Pod{pod("a", wrong)}, want: []string{"a: Annotation nvtopo.dev/x is not known; the pod is scheduled without it"}},
		"a pod that another process has bound": {standby: true, pods: []*v1.Pod{pod("a", wrong), pod("a", wrong, onNode)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			i := newIgnored(func(profile string) bool { return profile == "ours" }, func() bool { return !tc.standby })
			handler := i.handler()
			seen := map[types.UID]*v1.Pod{}
			for _, p := range tc.pods {
				if old := seen[p.UID]; old != nil {
					handler.OnUpdate(old, p)
				} else {
					handler.OnAdd(p, false)
				}
				seen[p.UID] = p
			}
			var got []string
			for x, ok := i.next(); ok; x, ok = i.next() {
				got = append(got, x.pod.Name+": "+x.text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, p := range seen {
				handler.OnDelete(p)
			}
			if len(i.of) > 0 || len(i.told) > 0 {
				t.Errorf("%d pods and %d texts are kept of pods that are gone", len(i.of), len(i.told))
			}
		})
	}
}

// TestIgnoredKeysOfStandby: a process that does not lead keeps no state of pods that are gone.
func TestIgnoredKeysOfStandby(t *testing.T) {
	i := newIgnored(func(string) bool { return true }, func() bool { return false })
	handler := i.handler()
	for n := range 3 {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID(rune('a' + n)), Annotations: map[string]string{"nvtopo.dev/topology-polcy": "x"}}}
		handler.OnAdd(p, false)
		if len(i.pending) != 1 {
			t.Fatalf("%d pods are pending, want the one that is there", len(i.pending))
		}
		handler.OnDelete(p)
		if len(i.pending) != 0 {
			t.Fatalf("%d pods are pending that are gone", len(i.pending))
		}
	}
}
