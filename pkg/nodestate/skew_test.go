// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/release"
)

// later returns a pod's annotation as a later release may write it.
func later(t *testing.T, pod *v1.Pod, replace ...string) *v1.Pod {
	t.Helper()
	p := pod.DeepCopy()
	text := strings.NewReplacer(replace...).Replace(p.Annotations[allocation.Key])
	if text == p.Annotations[allocation.Key] {
		t.Fatalf("nothing of %s to replace in %s", replace, text)
	}
	p.Annotations[allocation.Key] = text
	return p
}

func TestAnnotationsOfALaterRelease(t *testing.T) {
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
			r := newRig(t, "dgx-h100")
			var reported []error
			r.onMalformed = func(_ *v1.Pod, err error) { reported = append(reported, err) }
			pod := later(t, on(t, r.State, gpuPod("p", 2), "n", 2, 3), tc.replace...)
			r.pods = fixedStore{pod.UID: pod}
			info, lister := r.view(t, pod)
			u := r.usage(r.cells.get("n"), r.Node("n"), info, lister)
			if u.Used[0] != tc.wantUsed || u.Counted[0] != tc.wantCounted {
				t.Errorf("used %v and %d counted, want %v and %d", u.Used[0], u.Counted[0], tc.wantUsed, tc.wantCounted)
			}
			if got := len(reported) == 1 && errors.Is(reported[0], allocation.ErrNewerVersion); got != tc.wantNewer {
				t.Errorf("reported %v, want an ErrNewerVersion: %v", reported, tc.wantNewer)
			}
		})
	}
}

func TestOtherReleasesAreToldOfOnce(t *testing.T) {
	at := func(name, level string) *coordinationv1.Lease {
		l := lease(name, time.Unix(0, 0), time.Minute)
		if level != "" {
			l.Annotations = map[string]string{release.LevelKey: level}
		}
		return l
	}
	same, next := strconv.Itoa(release.Level), strconv.Itoa(release.Level+1)
	var r releases
	for i, step := range []struct {
		lease *coordinationv1.Lease
		want  bool
	}{
		{at("exporter-n1", same), false},
		{at("exporter-n1", next), true},
		{at("agent-n2", next), false}, // one of them was enough
		{at("agent-n2", "x"), true},
		{at("nvtopo-scheduler", "99"), false}, // no program of a node
		{at("agent-n3", "99"), true},
	} {
		if _, got := r.other(step.lease); got != step.want {
			t.Errorf("step %d, %s at %v: told %v, want %v", i, step.lease.Name, step.lease.Annotations, got, step.want)
		}
	}
	for i := range 100 {
		r.other(at("agent-n4", strconv.Itoa(1000+i)))
	}
	if len(r.seen) > maxReleases {
		t.Errorf("%d levels are remembered, at most %d should be", len(r.seen), maxReleases)
	}
}
