// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// TestSameGroup: each write to a PodGroup, the scheduler's own too, had its gang planned anew.
func TestSameGroup(t *testing.T) {
	t.Parallel()
	group := func(minimum int32, notes map[string]string, running int32) *schedulingv1alpha1.PodGroup {
		return &schedulingv1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: notes},
			Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: minimum},
			Status:     schedulingv1alpha1.PodGroupStatus{Running: running},
		}
	}
	wish := map[string]string{gangrequest.RequiredKey: "rack"}
	tests := map[string]struct {
		before, after *schedulingv1alpha1.PodGroup
		want          bool
	}{
		"a new one":                          {nil, group(2, nil, 0), false},
		"its status":                         {group(2, nil, 0), group(2, nil, 2), true},
		"what the scheduler writes on it":    {group(2, nil, 0), group(2, map[string]string{gangrequest.StateKey: "x"}, 0), true},
		"another minimum":                    {group(2, nil, 0), group(3, nil, 0), false},
		"a wish":                             {group(2, nil, 0), group(2, wish, 0), false},
		"one that is deleted and made again": {group(2, nil, 0), &schedulingv1alpha1.PodGroup{Spec: schedulingv1alpha1.PodGroupSpec{MinMember: 2}}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sameGroup(tc.before, tc.after); got != tc.want {
				t.Errorf("same: %t, want %t", got, tc.want)
			}
		})
	}
}
