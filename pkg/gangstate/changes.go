// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// wishKeys are the annotations by which a gang and its members ask for something.
var wishKeys = slices.Concat(gangrequest.InputKeys(), podrequest.InputKeys())

// sameWishes reports whether annotations ask for the same as before. Many others are written on the
// same objects, by the scheduler too.
func sameWishes(old, notes map[string]string) bool {
	for _, key := range wishKeys {
		if old[key] != notes[key] {
			return false
		}
	}
	return true
}

// sameGroup reports whether a PodGroup asks for the same as before. Its status asks for nothing.
func sameGroup(old, group *schedulingv1alpha1.PodGroup) bool {
	if old == nil || group == nil {
		return old == group
	}
	return old.UID == group.UID && equality.Semantic.DeepEqual(old.Spec, group.Spec) && sameWishes(old.Annotations, group.Annotations)
}

// changed reports whether a pod says something else of its gang than before.
func changed(old, pod *v1.Pod) bool {
	return old.Spec.NodeName != pod.Spec.NodeName || len(old.Spec.SchedulingGates) != len(pod.Spec.SchedulingGates) ||
		old.Generation != pod.Generation || gangrequest.StandingOf(old) != gangrequest.StandingOf(pod) ||
		!sameNotes(old.Annotations, pod.Annotations) || !sameNotes(old.Labels, pod.Labels)
}

func sameNotes(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}
