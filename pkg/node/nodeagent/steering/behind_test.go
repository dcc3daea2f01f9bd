// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
)

// TestWatchLag: a watch that is behind gets a moment to catch up. Kubelet may know a pod a moment
// before the agent's watch does. The watch is given that moment, since a list from the API server
// costs far more. If the pod does not come, the list must still find it, and in time.
func TestWatchLag(t *testing.T) {
	const listTakes = 60 * time.Millisecond
	cases := map[string]struct {
		// others are delivered so long after the question, the pod that asks itself after late;
		// 0 is never.
		others    []time.Duration
		late      time.Duration
		deaf      bool // kubelet does not tell who holds what
		slow      bool // the API server does not answer
		want      []string
		wantLists float64
		wantTook  time.Duration
	}{
		"by a few milliseconds": {
			late: 5 * time.Millisecond, want: gpus(3, 4), wantTook: 5 * time.Millisecond,
		},
		"by a few milliseconds, and delivers others first": {
			others: []time.Duration{time.Millisecond, 3 * time.Millisecond}, late: 7 * time.Millisecond,
			want: gpus(3, 4), wantTook: 7 * time.Millisecond,
		},
		"for good": {
			want: gpus(3, 4), wantLists: 1, wantTook: watchWait + listTakes,
		},
		"for good, and delivers others all the time": {
			others: []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond},
			want:   gpus(3, 4), wantLists: 1, wantTook: watchWait + listTakes,
		},
		"for good, and the API server does not answer": {
			slow: true, want: gpus(4, 5), wantLists: 1, wantTook: min(askBudget, watchWait+listBudget),
		},
		// Nobody tells then whether the pod that came is the one: there may be more.
		"by a few milliseconds, beside a kubelet that does not tell": {
			others: []time.Duration{5 * time.Millisecond},
			deaf:   true, want: gpus(3, 4), wantLists: 1, wantTook: 5*time.Millisecond + listTakes,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := newTestEnv(t, nil)
			n.admit(n.bind("runs", ofOne(2), gpus(6, 7)))
			pod := newPod("p", "uid-p", epoch, ofOne(2), gpus(3, 4))
			n.api.set(pod, func(*v1.Pod) {})
			n.api.held = map[types.UID]bool{pod.UID: true}
			n.api.takes = listTakes
			n.model.known["ns/p"] = pod // kubelet was handed it
			synctest.Test(t, func(t *testing.T) {
				var k Kubelet = n.model
				if tc.deaf {
					k = deaf{}
				}
				n.start(k)
				if tc.slow {
					n.pods = slowList{n.api}
				}
				for i, after := range tc.others {
					time.AfterFunc(after, func() { n.bind(fmt.Sprintf("other%d", i), ofOne(2), gpus(0, 1)) })
				}
				if tc.late > 0 {
					time.AfterFunc(tc.late, func() {
						n.api.mu.Lock()
						n.api.held = nil
						n.api.mu.Unlock()
						n.api.sync()
					})
				}
				start := time.Now()
				got, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5), Size: 2}, nil)
				took := time.Since(start)
				if err != nil || !slices.Equal(got, tc.want) || took != tc.wantTook {
					t.Errorf("answer %v, %v after %v; want %v after %v", got, err, took, tc.want, tc.wantTook)
				}
				if lists := testutil.ToFloat64(n.metrics.lists); lists != tc.wantLists {
					t.Errorf("%v lists from the API server, want %v", lists, tc.wantLists)
				}
			})
		})
	}
}
