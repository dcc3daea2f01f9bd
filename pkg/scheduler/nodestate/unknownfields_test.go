// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestUnknownAllocationFields: unknown fields of an annotation are ignored, and an annotation of another
// version is not used.
func TestUnknownAllocationFields(t *testing.T) {
	tests := map[string]struct {
		replace     []string
		wantUsed    nvtopo.Mask
		wantCounted int
		wantNewer   bool
	}{
		"a further field is ignored": {
			replace: []string{`"version":1`, `"version":1,"partition":{"kind":"x"},"reason":["a"]`}, wantUsed: nvtopo.MaskOf(2, 3),
		},
		"so is one of a container": {
			replace: []string{`"name":"main"`, `"name":"main","nics":["mlx5_0"]`}, wantUsed: nvtopo.MaskOf(2, 3),
		},
		"what it does not name in a field we know is counted": {
			replace: []string{`"containers":[`, `"groups":[`}, wantCounted: 2,
		},
		"of another version nothing is believed, and the GPUs are counted": {
			replace: []string{`"version":1`, `"version":2`}, wantCounted: 2, wantNewer: true,
		},
		"nor of one whose fields have other types": {
			replace: []string{`"version":1`, `"version":2`, `"containers":[`, `"containers":{},"was":[`}, wantCounted: 2, wantNewer: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx-h100")
			var reported []error
			r.PodDevices.onMalformed = func(_ *v1.Pod, err error) { reported = append(reported, err) }
			pod := on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n", 2, 3)
			text := strings.NewReplacer(tc.replace...).Replace(pod.Annotations[allocation.Key])
			if text == pod.Annotations[allocation.Key] {
				t.Fatalf("nothing of %s to replace in %s", tc.replace, text)
			}
			pod.Annotations[allocation.Key] = text
			r.listers.pods = fixedStore{pod.UID: pod}
			info, lister := r.view(t, pod)
			u := r.Nodes.usage(r.Nodes.cells.get("n"), r.Nodes.Node("n"), info, lister)
			if u.Used[0] != tc.wantUsed || u.Counted[0] != tc.wantCounted {
				t.Errorf("used %v and %d counted, want %v and %d", u.Used[0], u.Counted[0], tc.wantUsed, tc.wantCounted)
			}
			if got := len(reported) == 1 && errors.Is(reported[0], allocation.ErrNewerVersion); got != tc.wantNewer {
				t.Errorf("reported %v, want an ErrNewerVersion: %v", reported, tc.wantNewer)
			}
		})
	}
}
