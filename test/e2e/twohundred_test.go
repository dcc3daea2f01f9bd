// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/pkg/devcluster/realnode/gpunode"
)

const (
	// defaultPods is how many pods the long tests create.
	defaultPods = 200
	// burst is how many of them exist at a time: more than the eight GPUs can
	// hold, so that every freed GPU has several pods waiting for it.
	burst = 24
	// perPod bounds the time of a pod; it takes some 0.3 s on two idle cores.
	perPod = 5 * time.Second
)

// seed makes the long tests repeatable.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	s := number(t, "NVTOPO_E2E_SEED", 1)
	t.Logf("NVTOPO_E2E_SEED=%d", s)
	return rand.New(rand.NewPCG(uint64(s), 0)) //nolint:gosec // a reproducible test
}

// TestTwoHundredPods: whatever the sizes and however alike the pods, each
// container gets the GPUs that the scheduler chose, and everybody says so.
func TestTwoHundredPods(t *testing.T) {
	n := number(t, "NVTOPO_E2E_PODS", defaultPods)
	pods := workload(n, seed(t))
	rate := map[bool]float64{}
	for _, agent := range []bool{false, true} {
		name := map[bool]string{false: "without the agent", true: "with the agent"}[agent]
		t.Run(name, func(t *testing.T) {
			l := start(t, gpunode.Config{Agent: agent})
			c := &churn{lab: l}
			if agent {
				c.look = judgePod
			}
			took := c.run(t, pods, burst, time.Duration(n)*perPod)
			rate[agent] = float64(c.looked) / took.Seconds()
			t.Logf("%d pods in %.1f s: %.1f pods/s; refused: %v", c.looked, took.Seconds(), rate[agent], c.failed)
			for _, p := range c.problems {
				t.Error(p)
			}
			if c.looked != n || len(c.failed) > 0 {
				t.Errorf("%d of %d pods ran; refused: %v", c.looked, n, c.failed)
			}
		})
	}
	t.Logf("pods/s on the same node: %.1f without the agent, %.1f with it", rate[false], rate[true])
}
