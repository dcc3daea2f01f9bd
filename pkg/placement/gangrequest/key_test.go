// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"strings"
	"testing"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
)

func TestKeyOf(t *testing.T) {
	tests := map[string]struct {
		labels, annotations texts
		want                Key // empty: no gang
	}{
		"a pod without either":        {},
		"a PodGroup's label":          {labels: texts{schedulingv1alpha1.PodGroupLabel: "g"}, want: groupKey},
		"an empty label is no gang":   {labels: texts{schedulingv1alpha1.PodGroupLabel: "", kueueGroupLabel: ""}},
		"Kueue's label":               {labels: texts{kueueGroupLabel: "g"}, want: Key{SourceKueue, "ns", "g"}},
		"an annotation":               {annotations: texts{GangKey: "g"}, want: Key{SourceAnnotation, "ns", "g"}},
		"an annotation without name":  {annotations: texts{GangKey: ""}, want: Key{SourceAnnotation, "ns", ""}},
		"the PodGroup before others":  {labels: texts{schedulingv1alpha1.PodGroupLabel: "g", kueueGroupLabel: "k"}, annotations: texts{GangKey: "a"}, want: groupKey},
		"Kueue before the annotation": {labels: texts{kueueGroupLabel: "k"}, annotations: texts{GangKey: "a"}, want: Key{SourceKueue, "ns", "k"}},
		"pods that Kueue admits one by one are no gang": {
			labels: texts{kueueGroupLabel: "k"}, annotations: texts{kueueFastKey: "true"},
		},
		"unless they are annotated": {
			labels: texts{kueueGroupLabel: "k"}, annotations: texts{kueueFastKey: "true", GangKey: "a"}, want: Key{SourceAnnotation, "ns", "a"},
		},
		"a name that is too long is cut": {
			annotations: texts{GangKey: strings.Repeat("x", 9000)}, want: Key{SourceAnnotation, "ns", strings.Repeat("x", maxName+1)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{}
			pod.Namespace, pod.Labels, pod.Annotations = "ns", tc.labels, tc.annotations
			got, ok := KeyOf(pod)
			if got != tc.want || ok != (tc.want != Key{}) {
				t.Errorf("%v, %t, want %v", got, ok, tc.want)
			}
		})
	}
}

func TestNearOf(t *testing.T) {
	tests := map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"a pod that says so":               {pod: member("p", plainPod, annotate(NearKey, "g")), want: true},
		"a pod that does not":              {pod: member("p", plainPod)},
		"a member is near its gang":        {pod: member("p", annotate(NearKey, "g"))},
		"no name":                          {pod: member("p", plainPod, annotate(NearKey, ""))},
		"a name that no gang can have":     {pod: member("p", plainPod, annotate(NearKey, strings.Repeat("x", maxName+1)))},
		"the longest name that there is":   {pod: member("p", plainPod, annotate(NearKey, "g"+strings.Repeat("x", maxName-1))), want: true},
		"a pod of Kueue's that is no gang": {pod: member("p", plainPod, label(kueueGroupLabel, "k"), annotate(kueueFastKey, ""), annotate(NearKey, "g")), want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			keys, ok := NearOf(tc.pod)
			if ok != tc.want {
				t.Fatalf("%v, %t, want %t", keys, ok, tc.want)
			}
			if !ok {
				return
			}
			for i, source := range []Source{SourcePodGroup, SourceKueue, SourceAnnotation} {
				if want := (Key{source, "ns", tc.pod.Annotations[NearKey]}); keys[i] != want {
					t.Errorf("%v, want %v", keys[i], want)
				}
			}
		})
	}
}

// plainPod makes the pod no member.
func plainPod(p *v1.Pod) { delete(p.Labels, schedulingv1alpha1.PodGroupLabel) }

// TestKeyAllocations: keys are found without allocating.
func TestKeyAllocations(t *testing.T) {
	pods := []*v1.Pod{member("p"), member("p", kueue("4")), member("p", plain("4")), member("p", plainPod, annotate(NearKey, "g"))}
	n := testing.AllocsPerRun(100, func() {
		for _, p := range pods {
			KeyOf(p)
			NearOf(p)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkKeyOf(b *testing.B) {
	for name, pod := range map[string]*v1.Pod{"none": member("p", plainPod), "PodGroup": member("p"), "annotation": member("p", plain("4"))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				KeyOf(pod)
			}
		})
	}
}
