// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRefusingKubelets: a node whose kubelet refused several pods within minutes is a note, and none that
// did so long ago, or whose pods failed by themselves.
func TestRefusingKubelets(t *testing.T) {
	cases := map[string]struct {
		ago    time.Duration
		pods   int
		old    int // more pods that were refused ten minutes ago
		reason string
		want   wanted
	}{
		"three refused pods": {
			ago: time.Minute, pods: 3, reason: "UnexpectedAdmissionError",
			want: wanted{notes: []string{KubeletRefuses}, message: "kubelet refused 3 pods with GPUs within 5 minutes, the last with UnexpectedAdmissionError"},
		},
		"two":                             {ago: time.Minute, pods: 2, reason: "UnexpectedAdmissionError"},
		"many that were refused long ago": {ago: 10 * time.Minute, pods: 9, reason: "OutOfnvidia.com/gpu"},
		"many that failed by themselves":  {ago: time.Minute, pods: 9, reason: "Error"},
		"those that were refused long ago are not named": {
			ago: time.Minute, pods: 3, old: 3, reason: "OutOfnvidia.com/gpu", want: wanted{notes: []string{KubeletRefuses}, message: "refused 3 pods"},
		},
		"many, and the first few are named": {ago: time.Minute, pods: 9, reason: "OutOfnvidia.com/gpu", want: wanted{notes: []string{KubeletRefuses}, message: "refused 9 pods"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			refuse := func(name string, n int, ago time.Duration) {
				for i := range n {
					p := c.pod(name+strconv.Itoa(i), "a", 0, 1)
					p.Status.Phase, p.Status.Reason = v1.PodFailed, tc.reason
					p.CreationTimestamp = metav1.NewTime(c.Now.Add(-ago))
				}
			}
			refuse("old-", tc.old, 10*time.Minute)
			refuse("p", tc.pods, tc.ago)
			r := Examine(c.World)
			tc.want.compare(t, r)
			if len(r.Notes) > 0 && len(r.Notes[0].Objects) != 4 {
				t.Errorf("the note names %v, want the node and three pods", r.Notes[0].Objects)
			}
			for _, n := range r.Notes {
				if slices.ContainsFunc(n.Objects, func(o Object) bool { return strings.HasPrefix(o.Name, "old-") }) {
					t.Errorf("the note names %v, want no pod that was refused long ago", n.Objects)
				}
			}
		})
	}
}
