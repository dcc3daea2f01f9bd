// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nodestate/leader"
)

// TestFailedEviction: one eviction that fails ends no roll-back. It has the eviction of b, of a, b
// and c, fail.
func TestFailedEviction(t *testing.T) {
	t.Parallel()
	pods := v1.Resource("pods")
	tests := map[string]struct {
		err error

		wantAsked   []string
		wantEvicted int
		wantErr     bool
	}{
		"its disruption budget refuses":          {apierrors.NewTooManyRequests("no", 0), []string{"a", "b", "c"}, 2, true},
		"it is gone":                             {apierrors.NewNotFound(pods, "b"), []string{"a", "b", "c"}, 2, false},
		"another one has its name":               {apierrors.NewConflict(pods, "b", errors.New("UID")), []string{"a", "b", "c"}, 2, false},
		"the API server fails":                   {errors.New("it is down"), []string{"a", "b", "c"}, 2, true},
		"another process leads":                  {leader.ErrNotLeader, []string{"a", "b"}, 1, true},
		"the API server does not answer":         {context.DeadlineExceeded, []string{"a", "b"}, 1, true},
		"the process ends while it is asked for": {context.Canceled, []string{"a", "b"}, 1, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var victims []*v1.Pod
			for _, name := range []string{"a", "b", "c"} {
				victims = append(victims, schedtest.Pod(name).Obj())
			}
			var asked []string
			failed := fmt.Errorf("evicting pod b: %w", tc.err)
			evicted, err := evictEach(victims, func(pod *v1.Pod) error {
				asked = append(asked, pod.Name)
				if pod.Name == "b" {
					return failed
				}
				return nil
			})
			if diff := cmp.Diff(tc.wantAsked, asked); diff != "" {
				t.Errorf("asked for (-want,+got)\n%s", diff)
			}
			if evicted != tc.wantEvicted {
				t.Errorf("%d were evicted, want %d", evicted, tc.wantEvicted)
			}
			if (err != nil) != tc.wantErr || err != nil && !errors.Is(err, failed) {
				t.Errorf("the error is %v, want that of b: %t", err, tc.wantErr)
			}
		})
	}
}

// TestSameAttempt: that a gang is whole is written on its PodGroup also where something else of it was
// changed since it was read.
func TestSameAttempt(t *testing.T) {
	t.Parallel()
	group := func(state string, minimum int32, version string) *schedulingv1alpha1.PodGroup {
		g := &schedulingv1alpha1.PodGroup{Spec: schedulingv1alpha1.PodGroupSpec{MinMember: minimum}}
		g.ResourceVersion, g.Annotations = version, map[string]string{gangrequest.StateKey: state}
		return g
	}
	const first, second = `{"attempt":1,"whole":false}`, `{"attempt":2,"whole":false}`
	tests := map[string]struct {
		now  *schedulingv1alpha1.PodGroup
		want bool
	}{
		"nothing was changed":             {group(first, 2, "1"), true},
		"its status was changed":          {group(first, 2, "2"), true},
		"another attempt was begun":       {group(second, 2, "2"), false},
		"somebody wrote that it is whole": {group(`{"attempt":1,"whole":true}`, 2, "2"), false},
		"it asks for more members":        {group(first, 4, "2"), false},
		"its state cannot be read":        {group("{", 2, "2"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sameAttempt(group(first, 2, "1"), tc.now); got != tc.want {
				t.Errorf("the same attempt: %t, want %t", got, tc.want)
			}
		})
	}
}
