// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"testing"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// TestLateWholeWrite: a write that comes when the gang's next attempt has begun marks only its own attempt
// whole.
func TestLateWholeWrite(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		attempt int64  // of the write; 0: of members that came later
		state   string // of the PodGroup now

		want bool
	}{
		"it is the same attempt":             {2, `{"attempt":2,"whole":false}`, false},
		"another one was begun":              {1, `{"attempt":2,"whole":false}`, true},
		"another one is whole":               {1, `{"attempt":2,"whole":true}`, true},
		"a member that came later is bound":  {0, `{"attempt":2,"whole":false}`, false},
		"somebody took the state away":       {1, "", false},
		"somebody made the state unreadable": {1, `{"attempt":1}`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := &schedulingv1alpha1.PodGroup{}
			if tc.state != "" {
				group.Annotations = map[string]string{gangrequest.StateKey: tc.state}
			}
			if got := overtaken(&gangstate.Commit{Attempt: tc.attempt}, group); got != tc.want {
				t.Errorf("overtaken: %t, want %t", got, tc.want)
			}
		})
	}
}
