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

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering"
	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

// wantRequests is the number of requests that an answer takes from kubelet's rate limit, 10 ms each.
const wantRequests = 3

// TestLatency measures our part of kubelet's calls on a node that is full of pods: kubelet's default of
// 110, of which those with GPUs come and go in bursts. The times are printed and not judged, as a machine
// may be slow. At least half of the answers need no more than their share of kubelet's rate limit: when
// kubelet did not list all pods in time, an answer takes one request for each pod.
func TestLatency(t *testing.T) {
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
			admitted, busy := 0, time.Duration(0)
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
			requests := c.agent.answers()
			t.Logf("%d pods admitted, %.0f a second; PodResources requests a pod: %.1f", admitted,
				float64(admitted)/busy.Seconds(), float64(c.agent.requests.Load())/float64(admitted))
			median := requests[len(requests)/2]
			t.Logf("PodResources requests for a GetPreferredAllocation: p50 %d, p99 %d, max %d", median,
				requests[(len(requests)*99-1)/100], requests[len(requests)-1])
			if median > wantRequests {
				t.Errorf("half of the answers took %d requests to kubelet or more, want at most %d", median, wantRequests)
			}
			for _, rpc := range []string{"GetPreferredAllocation", "Allocate", "PreStartContainer"} {
				h := c.histogram("nvtopo_agent_rpc_seconds", rpc, "own")
				if h.GetSampleCount() == 0 {
					continue
				}
				t.Logf("%-22s own part: %4d calls, p50 <= %v, p99 <= %v, max %v", rpc, h.GetSampleCount(), quantile(h, 0.5), quantile(h, 0.99),
					seconds(c.gauge("nvtopo_agent_rpc_slowest_seconds", rpc, "own")))
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

// quantile returns the upper bound of the bucket that holds the quantile.
func quantile(h *dto.Histogram, q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.GetSampleCount())))
	for _, b := range h.Bucket {
		if b.GetCumulativeCount() >= rank {
			return seconds(b.GetUpperBound())
		}
	}
	return math.MaxInt64
}

// countedClient counts requests under kubelet's rate limit.
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

// answers returns the number of requests of each answer, sorted.
func (a *agent) answers() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.preferred))
}

// countedSteering records the number of requests of each answer.
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
