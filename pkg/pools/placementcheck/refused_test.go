// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// TestRefusedCheck: a decision that the API server refuses is an event on its Workload, and is retried
// each minute; the other Workloads of the round get theirs.
func TestRefusedCheck(t *testing.T) {
	workloads := schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "workloads"}
	forbidden := apierrors.NewForbidden(workloads, "refused", errors.New("a policy says no"))
	for name, tc := range map[string]struct {
		err         error // of the write of Workload "refused"
		wantAgain   time.Duration
		wantErr     bool
		wantEvent   string
		wantDoubt   bool // whether the write was carried out
		wantWritten bool
	}{
		"it is written":   {wantWritten: true},
		"it is forbidden": {err: forbidden, wantAgain: refusal.Again, wantEvent: "Warning Refused the API server refuses the placement check of Workload team/refused: "},
		"it is invalid": {
			err: apierrors.NewInvalid(schema.GroupKind{Kind: kueue.WorkloadKind}, "refused", nil), wantAgain: refusal.Again,
			wantEvent: "Warning Refused the API server refuses the placement check of Workload team/refused: ",
		},
		"somebody else wrote first": {err: apierrors.NewConflict(workloads, "refused", errors.New("changed")), wantAgain: gather},
		"there is no answer":        {err: errors.New("connection lost"), wantErr: true, wantDoubt: true},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
					if o.GetName() == "refused" {
						return tc.err
					}
					return nil
				},
			}).Build()
			events := record.NewFakeRecorder(10)
			r := &Reconciler{
				writer: &writer{client: api}, recorder: events, clock: clocktesting.NewFakeClock(noon), written: map[types.UID]*kueue.Workload{},
			}
			var steps []Step
			for _, name := range []string{"refused", "other"} {
				w := job(name, 1, 1, nil)
				steps = append(steps, Step{Workload: w, Kind: Hold, Check: checkOf(w)})
			}
			again, err := r.write(t.Context(), steps)
			if again != tc.wantAgain || (err != nil) != tc.wantErr {
				t.Errorf("again after %v with error %v, want %v and an error: %t", again, err, tc.wantAgain, tc.wantErr)
			}
			var told []string
			for len(events.Events) > 0 {
				told = append(told, <-events.Events)
			}
			if tc.wantEvent == "" && len(told) > 0 || tc.wantEvent != "" && (len(told) != 1 || !strings.HasPrefix(told[0], tc.wantEvent)) {
				t.Errorf("events %q, want one that begins with %q", told, tc.wantEvent)
			}
			known, wrote := r.written["refused"]
			got := map[string]bool{"doubt": wrote && known == nil, "written": known != nil, "other": r.written["other"] != nil}
			if diff := cmp.Diff(map[string]bool{"doubt": tc.wantDoubt, "written": tc.wantWritten, "other": true}, got); diff != "" {
				t.Errorf("what is remembered (-want +got):\n%s", diff)
			}
		})
	}
}
