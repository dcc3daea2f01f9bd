// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/nodeagent/steering"
	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

// Of the 99th percentile of our part of one call of kubelet's.
const (
	wantP99 = 50 * time.Millisecond
	// quiet is how late a sleeper may wake on a machine of which the clock is believed.
	quiet = 10 * time.Millisecond
	// still is how late any sleeper may wake there: a machine that seldom stands still, and then
	// for long, has our slowest calls be slow and only few sleepers late.
	still = 25 * time.Millisecond
	// stall is how late one of them may wake where answers are in time for kubelet to be asked
	// for all pods at once. What comes later is asked for pod by pod.
	stall = 100 * time.Millisecond
	// wantRequests is what an answer may cost of kubelet's allowance, 10 ms each.
	wantRequests = 3
)

// TestLatencyOfOurPart measures our part of kubelet's calls on a node that is
// full of pods: kubelet's default of 110, of which those with GPUs come and go in
// bursts. The figures are printed. The clock is believed where nothing else keeps the
// processors busy; how many requests of kubelet's allowance we need, which is what the
// time goes to, where it does not stand still; and that kubelet's sync loop never waits a
// second for us, but for what the machine stood still, always holds.
func TestLatencyOfOurPart(t *testing.T) {
	const rounds = 36
	for _, mode := range []struct {
		name    string
		strict  bool
		shuffle bool // the worst case: kubelet gets pods in the order in which they were bound
	}{{"repair", false, false}, {"strict", true, false}, {"repair, admitted in no order", false, true}} {
		t.Run(mode.name, func(t *testing.T) {
			c := startChain(t, chainOptions{strict: mode.strict})
			for i := range 102 { // with 8 that use GPUs, 110
				p := devicemanager.Pod(fmt.Sprintf("other-%d", i), 10000+i, devicemanager.Container("app", gpu, 0))
				c.mustAdmit(c.api.put(p))
				c.run(p)
			}
			random := rand.New(rand.NewPCG(7, 110))
			admitted, busy, slept := 0, time.Duration(0), oversleeps(t)
			for round := range rounds {
				pods, wants := burst(c, random, 8*round, round%3)
				order := random.Perm(len(pods))
				if !mode.shuffle {
					slices.Sort(order)
				}
				for _, i := range order {
					before := time.Now()
					c.mustAdmit(pods[i])
					busy += time.Since(before)
					if _, err := c.StartContainer(t.Context(), pods[i], "app"); err != nil {
						t.Error(err)
					}
					c.run(pods[i])
					admitted++
				}
				for i, p := range pods {
					diff(t, p.Name, wants[i], c.held(p))
					c.end(p)
				}
			}
			late, latest := slept()
			requests := c.agent.answers()
			t.Logf("%d pods admitted, %.0f a second; PodResources requests a pod: %.1f; a sleeper woke %v late (p99), %v at most", admitted,
				float64(admitted)/busy.Seconds(), float64(c.agent.requests.Load())/float64(admitted), late, latest)
			t.Logf("PodResources requests for a GetPreferredAllocation: p50 %d, p99 %d, max %d", requests[len(requests)/2],
				requests[(len(requests)*99-1)/100], requests[len(requests)-1])
			if most := requests[len(requests)-1]; most > wantRequests && latest <= stall {
				t.Errorf("an answer took %d requests to kubelet, which is up to %d ms, want at most %d", most, 10*most, wantRequests)
			}
			for _, rpc := range []string{"GetPreferredAllocation", "Allocate", "PreStartContainer"} {
				h := c.histogram("nvtopo_agent_rpc_seconds", rpc, "own")
				if h.GetSampleCount() == 0 {
					continue
				}
				p99, slowest := quantile(h, 0.99), seconds(c.gauge("nvtopo_agent_rpc_slowest_seconds", rpc, "own"))
				t.Logf("%-22s own part: %4d calls, p50 <= %v, p99 <= %v, max %v", rpc, h.GetSampleCount(), quantile(h, 0.5), p99, slowest)
				if late <= quiet && latest <= still && min(p99, slowest) > wantP99 {
					t.Errorf("our part of a %s took up to %v (p99), want %v on a machine as quiet as this", rpc, min(p99, slowest), wantP99)
				}
				if slowest-latest >= time.Second {
					t.Errorf("our part of a %s took %v, at most a second is allowed, and the %v that the machine stood still", rpc, slowest, latest)
				}
			}
		})
	}
}

// burst binds 8 GPUs' worth of pods at once: 8 of one, 4 of two or 2 of four.
func burst(c *chain, random *rand.Rand, first, shape int) ([]*v1.Pod, []choice) {
	size := 1 << shape
	order := random.Perm(8)
	var pods []*v1.Pod
	var wants []choice
	for i := range 8 / size {
		want := choice{"app": choice{"": ids(order[i*size : (i+1)*size]...)}.all()}
		pods = append(pods, c.bind(app(first+i, size), want))
		wants = append(wants, want)
	}
	return pods, wants
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Microsecond)
}

// quantile is the upper bound of the bucket that holds it.
func quantile(h *dto.Histogram, q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.GetSampleCount())))
	for _, b := range h.Bucket {
		if b.GetCumulativeCount() >= rank {
			return seconds(b.GetUpperBound())
		}
	}
	return math.MaxInt64
}

// oversleeps begins to measure how late a sleeper is woken, and returns what tells the
// 99th percentile and the most of it and ends that.
func oversleeps(t *testing.T) (stop func() (p99, most time.Duration)) {
	t.Helper()
	const nap = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	late := []time.Duration{0}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			start := time.Now()
			time.Sleep(nap)
			late = append(late, time.Since(start)-nap)
		}
	}()
	return func() (p99, most time.Duration) {
		cancel()
		<-done
		slices.Sort(late)
		return late[(len(late)*99-1)/100].Round(10 * time.Microsecond), late[len(late)-1].Round(10 * time.Microsecond)
	}
}

// countedClient counts what is asked of kubelet's allowance.
type countedClient struct {
	*kubelet.PodResources
	n *atomic.Int64
}

func (c countedClient) Get(ctx context.Context, namespace, name string) (kubelet.Devices, error) {
	devices, err := c.PodResources.Get(ctx, namespace, name)
	c.count(err)
	return devices, err
}

func (c countedClient) ActivePods(ctx context.Context) (map[types.NamespacedName]bool, error) {
	active, err := c.PodResources.ActivePods(ctx)
	c.count(err)
	return active, err
}

func (c countedClient) count(err error) {
	if !errors.Is(err, kubelet.ErrBusy) {
		c.n.Add(1)
	}
}

// answers returns how many requests each answer took, sorted.
func (a *agent) answers() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.preferred))
}

// countedSteering takes down how many requests each answer took.
type countedSteering struct {
	*steering.Steering
	a *agent
}

func (s countedSteering) Preferred(ctx context.Context, q interposer.Question,
	inner func(context.Context, interposer.Question) ([]string, error),
) ([]string, error) {
	before := s.a.requests.Load()
	ids, err := s.Steering.Preferred(ctx, q, inner)
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.a.preferred = append(s.a.preferred, int(s.a.requests.Load()-before))
	return ids, err
}

func (c *chain) histogram(name string, labels ...string) *dto.Histogram {
	c.t.Helper()
	if m := c.find(name, labels); m != nil {
		return m.GetHistogram()
	}
	return &dto.Histogram{}
}

func (c *chain) gauge(name string, labels ...string) float64 {
	c.t.Helper()
	return c.find(name, labels).GetGauge().GetValue()
}

// find returns a metric of the agent, nil if it has none of that name and labels.
func (c *chain) find(name string, labels []string) *dto.Metric {
	c.t.Helper()
	families, err := c.agent.registry.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if hasLabels(m, labels) {
				return m
			}
		}
	}
	return nil
}
