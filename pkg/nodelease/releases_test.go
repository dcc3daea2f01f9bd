// SPDX-License-Identifier: Apache-2.0

package nodelease

import (
	"strconv"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/release"
)

// TestOtherReleases: other releases are told of once.
func TestOtherReleases(t *testing.T) {
	at := func(name, level string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if level != "" {
			l.Annotations = map[string]string{release.LevelKey: level}
		}
		return l
	}
	same, next := strconv.Itoa(release.Level), strconv.Itoa(release.Level+1)
	var r OtherReleases
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
		if _, got := r.first(step.lease); got != step.want {
			t.Errorf("step %d, %s at %v: told %v, want %v", i, step.lease.Name, step.lease.Annotations, got, step.want)
		}
	}
	for i := range 100 {
		r.first(at("agent-n4", strconv.Itoa(1000+i)))
	}
	if len(r.seen) > maxReleases {
		t.Errorf("%d levels are remembered, at most %d should be", len(r.seen), maxReleases)
	}
}
