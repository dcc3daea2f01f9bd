// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

const (
	// defaultPods is the number of pods of the long test.
	defaultPods = 200
	// baselineShare of them are created without the agent, to compare the rates.
	baselineShare = 4
	// burst is how many of them exist at a time: more than the eight GPUs can hold, so that every freed GPU
	// has several waiting pods.
	burst = 24
	// hold is the longest time for which a pod keeps its GPUs: some pods overlap.
	hold = 500 * time.Millisecond
)

// seed makes the long tests repeatable.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	s := number(t, "NVTOPO_E2E_SEED", 1)
	t.Logf("NVTOPO_E2E_SEED=%d", s)
	return rand.New(rand.NewPCG(uint64(s), 0)) // a reproducible test
}

// TestTwoHundredPods checks that each container gets the GPUs that the scheduler chose, for pods of all
// sizes and many alike, and that all accounts agree.
func TestTwoHundredPods(t *testing.T) { //nolint:tparallel // its steps follow one another on one node
	beside(t)
	n := number(t, "NVTOPO_E2E_PODS", defaultPods)
	rng := seed(t)
	pods := workload(n, rng)
	t.Logf("%d pods: %s", n, census(pods))
	rate := map[bool]float64{}

	t.Run("without the agent", func(t *testing.T) {
		l := start(t, gpunode.Config{})
		differ := 0
		c := &churn{env: l, hold: hold, rng: rng, judge: func(pod *v1.Pod, containers []gpunode.Observation) []string {
			if len(differences(pod.Name, containers)) > 0 {
				differ++
			}
			return inside(pod, containers)
		}}
		some := pods[:max(1, n/baselineShare)]
		took := c.run(t, some, burst)
		rate[false] = float64(c.looked) / took.Seconds()
		c.report(t, len(some), took)
		t.Logf("%d of %d pods did not get the GPUs that the scheduler chose", differ, c.looked)
		// Otherwise the steps below prove nothing.
		if differ == 0 {
			t.Error("without the agent every pod got the chosen GPUs: the comparison sees nothing")
		}
	})

	t.Run("with the agent", func(t *testing.T) {
		l := start(t, gpunode.Config{Agent: true})
		c := &churn{env: l, hold: hold, rng: rng, judge: judgePod}
		took := c.run(t, pods, burst)
		rate[true] = float64(c.looked) / took.Seconds()
		c.report(t, n, took)
		l.reportMetrics(t)
	})
	t.Logf("pods/s on the same node: %.2f without the agent, %.2f with it", rate[false], rate[true])
}

// census describes the kinds of the pods.
func census(pods []*v1.Pod) string {
	kinds := map[string]int{}
	alike := 0
	for i, p := range pods {
		switch {
		case len(p.Spec.Containers) > 1:
			kinds["two GPU containers"]++
		case len(p.Spec.InitContainers) > 0 && p.Spec.InitContainers[0].RestartPolicy != nil:
			kinds["sidecar"]++
		case len(p.Spec.InitContainers) > 0:
			kinds["init containers"]++
		default:
			kinds["plain"]++
		}
		if i > 0 && slices.Equal(sizes(p), sizes(pods[i-1])) {
			alike++
		}
	}
	return fmt.Sprintf("%v; %d ask for what the one before asked for", kinds, alike)
}

func sizes(p *v1.Pod) []int64 {
	var out []int64
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		q := c.Resources.Limits[v1.ResourceName(gpunode.Resource)]
		out = append(out, q.Value())
	}
	return out
}

// report prints the result of n pods and fails the test if there were mismatches.
func (c *churn) report(t *testing.T, n int, took time.Duration) {
	t.Helper()
	t.Logf("%d of %d pods ran, %d mismatches, in %.1f s: %.2f pods/s", c.looked, n, len(c.problems), took.Seconds(),
		float64(c.looked)/took.Seconds())
	for _, p := range c.problems {
		complain(t, p)
	}
	if c.looked != n || len(c.failed) > 0 {
		t.Errorf("refused: %v", c.failed)
	}
}

// reportMetrics prints the time of the agent's own part of each RPC and its decisions, and fails the test
// if it had to guess or to repair anything.
func (e *testEnv) reportMetrics(t *testing.T) {
	t.Helper()
	families, err := e.AgentMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families["nvtopo_agent_rpc_seconds"].GetMetric() {
		h := m.GetHistogram()
		if labelsOf(m)["part"] == "own" && h.GetSampleCount() > 0 {
			t.Logf("%-24s own part, %4d calls: p50 %s, p99 %s, max %s", labelsOf(m)["rpc"], h.GetSampleCount(),
				quantile(h, 0.5), quantile(h, 0.99), quantile(h, 1))
		}
	}
	for _, m := range families["nvtopo_agent_rpc_slowest_seconds"].GetMetric() {
		t.Logf("slowest %v: %s", labelsOf(m), time.Duration(m.GetGauge().GetValue()*float64(time.Second)).Round(10*time.Microsecond))
	}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() > 0 && slices.Contains(counters(), name) {
				t.Logf("%s%v %v", name, labelsOf(m), m.GetCounter().GetValue())
			}
		}
	}
	for _, name := range []string{"nvtopo_agent_mismatch_total", "nvtopo_agent_double_book_total"} {
		for _, m := range families[name].GetMetric() {
			switch n := m.GetCounter().GetValue(); {
			case n > 0 && name == "nvtopo_agent_double_book_total":
				testkit.Violation(t, "%s%v is %v", name, labelsOf(m), n)
			case n > 0:
				t.Errorf("%s%v is %v", name, labelsOf(m), n)
			}
		}
	}
}

func counters() []string {
	return []string{
		"nvtopo_agent_decisions_total", "nvtopo_agent_identity_total", "nvtopo_agent_ambiguous_total",
		"nvtopo_agent_double_book_total", "nvtopo_agent_mismatch_total",
		"nvtopo_agent_live_lists_total", "nvtopo_agent_podresources_gets_total", "nvtopo_agent_podresources_lists_total",
	}
}

func labelsOf(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// quantile returns the upper bound of the bucket that contains the quantile.
func quantile(h *dto.Histogram, q float64) string {
	for _, b := range h.GetBucket() {
		if float64(b.GetCumulativeCount()) >= q*float64(h.GetSampleCount()) && !math.IsInf(b.GetUpperBound(), 1) {
			return "<= " + time.Duration(b.GetUpperBound()*float64(time.Second)).String()
		}
	}
	return "beyond the last bucket"
}
