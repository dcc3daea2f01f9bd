// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// stockByNode gives the State stores with these pods, indexed by node.
func (e *testEnv) stockByNode(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	e.stock(t, pods...)
	byNode := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{podsByNode: nodeOfPod})
	for _, p := range pods {
		if err := byNode.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	e.listers.nodes = informerNodes{nodes: e.listers.stores.nodes, pods: byNode}
	e.Lists.in.Store(true)
}

const v100 = "Tesla V100-SXM2-32GB"

// TestMachineFigures reads the figures of a DGX-1 with V100, on which {0,1,2,3} and {4,5,6,7} are the
// halves. Its fast pairs have two NVLinks: 0-3, 0-4, 1-2, 1-5, 2-3, 4-7, 5-6, 6-7.
func TestMachineFigures(t *testing.T) {
	tests := map[string]struct {
		arrange func(t *testing.T, r *testEnv) []*v1.Pod
		want    gpuFigures
		pairs   groupFigures // of two GPUs
	}{
		"nothing runs": {
			arrange: func(*testing.T, *testEnv) []*v1.Pod { return nil },
			want:    gpuFigures{free: 8}, pairs: groupFigures{free: 4, capacity: 4, freeGPUs: 8},
		},
		"what is left are two fast pairs": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				return []*v1.Pod{on(t, r.State, schedtest.Pod("a").GPUs(4).Obj(), "n", 0, 1, 2, 3)}
			},
			want: gpuFigures{used: 4, free: 4}, pairs: groupFigures{free: 2, capacity: 4, freeGPUs: 4},
		},
		"0 and 2 are left, which are no fast pair": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				return []*v1.Pod{on(t, r.State, schedtest.Pod("a").GPUs(6).Obj(), "n", 1, 3, 4, 5, 6, 7)}
			},
			want: gpuFigures{used: 6, stranded: 2}, pairs: groupFigures{free: 0, capacity: 4, freeGPUs: 2},
		},
		"a pod that has ended holds nothing": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				p := on(t, r.State, schedtest.Pod("a").GPUs(4).Obj(), "n", 0, 1, 2, 3)
				p.Status.Phase = v1.PodSucceeded
				return []*v1.Pod{p}
			},
			want: gpuFigures{free: 8}, pairs: groupFigures{free: 4, capacity: 4, freeGPUs: 8},
		},
		"a node that is cordoned": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.node.Spec.Unschedulable = true
				return []*v1.Pod{on(t, r.State, schedtest.Pod("a").GPUs(1).Obj(), "n", 0)}
			},
			want: gpuFigures{used: 1, unusable: 7},
		},
		"a node that is not ready": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
				return nil
			},
			want: gpuFigures{unusable: 8},
		},
		"a graph that is stale": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.unvouch(t, placement.StaleGraph)
				return nil
			},
			want: gpuFigures{unusable: 8},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			r.stockByNode(t, tc.arrange(t, r)...)
			counters := groupCounters{}
			r.figures.read(counters) // counters of an earlier scrape change nothing
			f := r.figures.read(counters)
			if diff := cmp.Diff(map[string]*gpuFigures{v100: &tc.want}, f.gpus, cmp.AllowUnexported(gpuFigures{})); diff != "" {
				t.Errorf("GPUs (-want,+got)\n%s", diff)
			}
			got := groupFigures{}
			if g := f.groups[groupKey{v100, 2, "NV2"}]; g != nil {
				got = *g
			}
			if diff := cmp.Diff(tc.pairs, got, cmp.AllowUnexported(groupFigures{})); diff != "" {
				t.Errorf("pairs (-want,+got)\n%s", diff)
			}
		})
	}
}

// TestFigureMetrics scrapes the metrics of three pods, one of which has no ring.
func TestFigureMetrics(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	r.stockByNode(t,
		on(t, r.State, schedtest.Pod("near").GPUs(2).Obj(), "n", 0, 3), on(t, r.State, schedtest.Pod("far").GPUs(2).Obj(), "n", 1, 5),
		on(t, r.State, schedtest.Pod("one").GPUs(1).Obj(), "n", 2))
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(newFigureCollector(r.figures))
	const want = `
# HELP scheduler_nvtopo_gpus [ALPHA] GPUs by model and state, each in one: used; free (with a free partner as fast as any on the machine); stranded (free without one); unusable (not used and not to be had: unhealthy, or its node takes no pods).
# TYPE scheduler_nvtopo_gpus gauge
scheduler_nvtopo_gpus{model="Tesla V100-SXM2-32GB",state="free"} 2
scheduler_nvtopo_gpus{model="Tesla V100-SXM2-32GB",state="stranded"} 1
scheduler_nvtopo_gpus{model="Tesla V100-SXM2-32GB",state="unusable"} 0
scheduler_nvtopo_gpus{model="Tesla V100-SXM2-32GB",state="used"} 5
# HELP scheduler_nvtopo_pod_numa_nodes [ALPHA] NUMA nodes that the GPUs of a pod of two or more are on.
# TYPE scheduler_nvtopo_pod_numa_nodes gauge
scheduler_nvtopo_pod_numa_nodes{node_name="n",pod_name="far",pod_namespace="default"} 2
scheduler_nvtopo_pod_numa_nodes{node_name="n",pod_name="near",pod_namespace="default"} 1
# HELP scheduler_nvtopo_pod_numa_nodes_least [ALPHA] The fewest NUMA nodes that so many GPUs can be on, on the pod's node.
# TYPE scheduler_nvtopo_pod_numa_nodes_least gauge
scheduler_nvtopo_pod_numa_nodes_least{node_name="n",pod_name="far",pod_namespace="default"} 1
scheduler_nvtopo_pod_numa_nodes_least{node_name="n",pod_name="near",pod_namespace="default"} 1
`
	names := []string{"scheduler_nvtopo_gpus", "scheduler_nvtopo_pod_numa_nodes", "scheduler_nvtopo_pod_numa_nodes_least"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	for _, p := range r.figures.read(groupCounters{}).pods {
		// Two NVLinks of 25 GB/s: 1 GB over two GPUs is 20 ms, and some microseconds of latency.
		if p.reduce < 0.02 || p.reduce > 0.0201 {
			t.Errorf("pod %s: all-reduce in %v s, want 20 ms", p.name, p.reduce)
		}
	}
}

// TestReduceAtLeast computes the time of an all-reduce on a pod's GPUs of a DGX-1, and on the best set of
// that size. NvtopoAllReduceSlow fires above twice that.
func TestReduceAtLeast(t *testing.T) {
	for name, tc := range map[string]struct {
		gpus            []int
		reduce, atLeast float64 // milliseconds
		wantSlow        bool
	}{
		"two with two NVLinks":            {[]int{0, 3}, 20, 20, false},
		"two with one":                    {[]int{0, 1}, 40, 20, false},
		"two that only PCIe joins":        {[]int{0, 5}, 167, 20, true},
		"four in a ring of NVLinks":       {[]int{0, 1, 2, 3}, 60, 60, false},
		"four in a ring with a PCIe link": {[]int{0, 1, 6, 7}, 250, 60, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			r.stockByNode(t, on(t, r.State, schedtest.Pod("p").GPUs(len(tc.gpus)).Obj(), "n", tc.gpus...))
			for _, p := range r.figures.read(groupCounters{}).pods {
				got := []float64{math.Round(p.reduce * 1000), math.Round(p.leastReduce * 1000)}
				if diff := cmp.Diff([]float64{tc.reduce, tc.atLeast}, got); diff != "" || (p.reduce > 2*p.leastReduce) != tc.wantSlow {
					t.Errorf("%v of %v s, slow %t, want %t; ms (-want,+got)\n%s", p.reduce, p.leastReduce, p.reduce > 2*p.leastReduce, tc.wantSlow, diff)
				}
			}
		})
	}
}

// TestConcurrentScrapes: concurrent scrapes return the same, and the next one has later changes.
func TestConcurrentScrapes(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	r.stockByNode(t, on(t, r.State, schedtest.Pod("a").GPUs(4).Obj(), "n", 0, 1, 2, 3))
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(newFigureCollector(r.figures))
	const head = `
# HELP scheduler_nvtopo_linked_groups [ALPHA] Disjoint groups of GPUs of one node whose ring is as fast as that of as many can be there, by model, number of GPUs and class of that ring's weakest link: free now, possible (of as many free GPUs, were they rightly spread) and capacity (with nothing used).
# TYPE scheduler_nvtopo_linked_groups gauge
`
	group := func(gpus int, class, state string, n int) string {
		return fmt.Sprintf("scheduler_nvtopo_linked_groups{gpus=%q,link_class=%q,model=%q,state=%q} %d\n", strconv.Itoa(gpus), class, v100, state, n)
	}
	all := func(capacity8, capacity4, capacity2, free4, free2, possible4, possible2 int) string {
		return head + group(2, "NV2", "capacity", capacity2) + group(2, "NV2", "free", free2) + group(2, "NV2", "possible", possible2) +
			group(4, "NV1", "capacity", capacity4) + group(4, "NV1", "free", free4) + group(4, "NV1", "possible", possible4) +
			group(8, "NV2", "capacity", capacity8) + group(8, "NV2", "free", 0) + group(8, "NV2", "possible", 0)
	}
	var scrapes sync.WaitGroup
	for range 4 {
		scrapes.Go(func() {
			if err := testutil.GatherAndCompare(registry, strings.NewReader(all(1, 2, 4, 1, 2, 1, 2)), "scheduler_nvtopo_linked_groups"); err != nil {
				t.Error(err)
			}
		})
	}
	scrapes.Wait()
	r.withHealth(t, "dgx1-v100", "2", nvtopo.MaskOf(7), 0)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(all(0, 1, 3, 0, 1, 0, 1)), "scheduler_nvtopo_linked_groups"); err != nil {
		t.Errorf("once GPU 7 is unhealthy: %v", err)
	}
}

// BenchmarkFigures scrapes 1000 nodes of eight GPUs, each with a pod of two.
func BenchmarkFigures(b *testing.B) {
	s := New(testConfig(), &tickClock{now: time.Unix(1_700_000_000, 0)})
	s.Lists.in.Store(true)
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{podsByNode: nodeOfPod})
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for i := range 1000 {
		name := "n" + strconv.Itoa(i)
		node := addNode(b, s, name, "dgx1-v100")
		if err := errors.Join(nodes.Add(node), pods.Add(on(b, s, schedtest.Pod("p"+name).GPUs(2).Obj(), name, i%4, 4+i%3))); err != nil {
			b.Fatal(err)
		}
	}
	s.listers.stores = informerStores{pods: corelisters.NewPodLister(pods), nodes: corelisters.NewNodeLister(nodes)}
	s.listers.pods, s.listers.nodes = informerPods{s.listers.stores.pods}, informerNodes{nodes: s.listers.stores.nodes, pods: pods}
	counters := groupCounters{}
	for b.Loop() {
		if f := s.figures.read(counters); len(f.pods) != 1000 {
			b.Fatalf("%d pods", len(f.pods))
		}
	}
}
