// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// slot is the expected free capacity of one node.
type slot struct {
	node   string
	graph  *nvtopo.Graph
	oracle *oracle.Oracle
	free   nvtopo.Mask
	cpus   nvtopo.CPUSet // given to no pod
}

func (e *testEnv) slot(t *testing.T, node, machine string) *slot {
	t.Helper()
	g := e.node(t, node, machine)
	return &slot{node: node, graph: g, oracle: oracle.New(g), free: g.Healthy(), cpus: allCPUs(g)}
}

func allCPUs(g *nvtopo.Graph) nvtopo.CPUSet {
	var all nvtopo.CPUSet
	for i := range g.NUMANodes {
		all = all.Union(g.NUMANodes[i].CPUs)
	}
	return all
}

// best returns the GPUs that a pod should get by the objective.
func (s *slot) best(tb testing.TB, pod *v1.Pod) (nvtopo.Mask, bool) {
	tb.Helper()
	total := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return s.oracle.Best(s.free, allowedOf(tb, pod, s.graph), int(total.Name(gpuResource, "").Value()), constraintOf(tb, pod))
}

// take checks a bound pod's choice against the objective and subtracts it.
func (s *slot) take(tb testing.TB, pod *v1.Pod) *choice {
	tb.Helper()
	c := choiceOf(tb, pod, s.graph)
	want, ok := s.best(tb, pod)
	if !ok || c.set != want {
		tb.Fatalf("pod %s has GPUs %v, want %v of the free %v (possible: %tb)", pod.Name, c.set.Positions(), want.Positions(), s.free.Positions(), ok)
	}
	// The order of three moments, independent of durations: the pod is created, chosen for, and seen.
	if now := time.Now(); c.Unconfirmed || c.Assumed.After(now) || c.Assumed.Before(pod.CreationTimestamp.Time) {
		tb.Errorf("pod %s: unconfirmed %t, made %v, assumed %v, seen %v", pod.Name, c.Unconfirmed, pod.CreationTimestamp, c.Assumed, now)
	}
	s.checkCPUs(tb, pod, c)
	s.free &^= c.set
	s.cpus = s.cpus.Minus(c.cpus)
	return c
}

// checkCPUs checks that a pod got as many CPUs as it requests, none twice, and none from afar while one
// near its GPUs was free.
func (s *slot) checkCPUs(tb testing.TB, pod *v1.Pod, c *choice) {
	tb.Helper()
	total := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	near := 0
	for i := range s.graph.NUMANodes {
		if slices.Contains(c.NUMANodes, s.graph.NUMANodes[i].ID) {
			for _, cpu := range s.graph.NUMANodes[i].CPUs {
				if s.cpus.Has(cpu) {
					near++
				}
				if c.cpus.Has(cpu) {
					near--
				}
			}
		}
	}
	asked := int(total.Cpu().Value())
	if len(c.cpus) != asked || len(c.cpus.Minus(s.cpus)) > 0 {
		tb.Errorf("pod %s has CPUs %s, want %d of the free %s", pod.Name, c.CPUSet, asked, s.cpus)
	}
	far := len(c.cpus)
	for i := range s.graph.NUMANodes {
		if nn := &s.graph.NUMANodes[i]; slices.Contains(c.NUMANodes, nn.ID) {
			far -= len(nn.CPUs) - len(nn.CPUs.Minus(c.cpus))
		}
	}
	if far > 0 && near > 0 {
		tb.Errorf("pod %s on NUMA nodes %v has CPUs %s, %d of them from elsewhere, while %d near ones stay free", pod.Name, c.NUMANodes, c.CPUSet, far, near)
	}
}

func (s *slot) giveBack(c *choice) {
	s.free |= c.set
	s.cpus = s.cpus.Union(c.cpus)
}

// testAnnotations creates each case's pods one after another on a node of their own, in both ways of
// writing: each must get the best set of the GPUs that earlier ones left, and exactly the annotations of
// that choice.
func (e *testEnv) testAnnotations(t *testing.T) {
	const cube, flat, bridged = "dgx1-v100", "hgx-h200", "a100-pcie-4-bridged"
	for name, tc := range map[string]struct {
		machine string
		pods    func(profile string) []*v1.Pod
	}{
		"one GPU, then the next": {cube, func(p string) []*v1.Pod {
			return []*v1.Pod{gpuPod("a", p, 1).Obj(), gpuPod("b", p, 1).Obj()}
		}},
		"two, four and two": {cube, func(p string) []*v1.Pod {
			return []*v1.Pod{gpuPod("a", p, 2).Obj(), gpuPod("b", p, 4).Obj(), gpuPod("c", p, 2).Obj()}
		}},
		"three beside a single one": {cube, func(p string) []*v1.Pod {
			return []*v1.Pod{gpuPod("a", p, 1).Obj(), gpuPod("b", p, 3).Obj(), gpuPod("c", p, 3).Obj()}
		}},
		"a whole switched machine": {flat, func(p string) []*v1.Pod { return []*v1.Pod{gpuPod("a", p, 8).Obj()} }},
		"pairs on bridges":         {bridged, func(p string) []*v1.Pod { return []*v1.Pod{gpuPod("a", p, 2).Obj(), gpuPod("b", p, 2).Obj()} }},
		"every policy": {cube, func(p string) []*v1.Pod {
			return []*v1.Pod{
				gpuPod("a", p, 1).Annotation(podrequest.TopologyPolicyKey, "none").Obj(),
				gpuPod("b", p, 2).Annotation(podrequest.TopologyPolicyKey, "restricted").Obj(),
				gpuPod("c", p, 3).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj(),
				gpuPod("d", p, 2).Annotation(podrequest.TopologyPolicyKey, "best-effort").Obj(),
			}
		}},
		"restricted to as many NUMA nodes as the empty machine needs": {cube, func(p string) []*v1.Pod {
			return []*v1.Pod{gpuPod("a", p, 5).Annotation(podrequest.TopologyPolicyKey, "restricted").Obj()}
		}},
		"link class and bandwidth floors": {cube, func(p string) []*v1.Pod {
			return []*v1.Pod{
				gpuPod("a", p, 2).Annotation(podrequest.MinLinkKey, "NV2").Obj(),
				gpuPod("b", p, 3).Annotations(notes{podrequest.MinLinkKey: "NVLINK", podrequest.MinBandwidthKey: "25"}).Obj(),
				gpuPod("c", p, 2).Annotation(podrequest.MinLinkKey, "PHB").Obj(),
			}
		}},
		"model and memory": {cube, func(p string) []*v1.Pod {
			return []*v1.Pod{gpuPod("a", p, 2).Annotations(notes{podrequest.GPUModelKey: "V100", podrequest.MinGPUMemoryKey: "30Gi"}).Obj()}
		}},
		"two containers": {cube, func(p string) []*v1.Pod {
			return []*v1.Pod{gpuPod("a", p, 0).Containers(container("left", 2), container("right", 2), container("none", 0)).Obj()}
		}},
		"containers of unequal size on a used node": {cube, func(p string) []*v1.Pod {
			return []*v1.Pod{
				gpuPod("a", p, 1).Obj(), gpuPod("b", p, 0).Containers(container("small", 1), container("large", 3)).Obj(),
			}
		}},
		"an init container reuses GPUs": {cube, func(p string) []*v1.Pod {
			pod := gpuPod("a", p, 2).Obj()
			pod.Spec.InitContainers = []v1.Container{container("prepare", 1)}
			return []*v1.Pod{pod, gpuPod("b", p, 2).Obj()}
		}},
		"an init container needs more than what follows": {cube, func(p string) []*v1.Pod {
			pod := gpuPod("a", p, 1).Obj()
			pod.Spec.InitContainers = []v1.Container{container("prepare", 4)}
			return []*v1.Pod{pod}
		}},
		"only an init container has GPUs": {cube, func(p string) []*v1.Pod {
			pod := gpuPod("a", p, 0).Obj()
			pod.Spec.InitContainers = []v1.Container{container("prepare", 2)}
			return []*v1.Pod{pod}
		}},
		"a sidecar keeps its own": {cube, func(p string) []*v1.Pod {
			pod := gpuPod("a", p, 2).Obj()
			pod.Spec.InitContainers = []v1.Container{sidecar("cache", 1), container("prepare", 2)}
			return []*v1.Pod{pod, gpuPod("b", p, 4).Obj()}
		}},
	} {
		for _, p := range bothWrites {
			t.Run(name+" "+p, func(t *testing.T) {
				s := e.slot(t, e.freshName("node"), tc.machine)
				for _, pod := range tc.pods(p) {
					pod.Name = s.node + "-" + pod.Name
					pod.Spec.NodeSelector = host(s.node)
					e.create(t, pod)
					s.take(t, e.bound(t, pod.Name))
				}
			})
		}
	}
}

// testSequences creates and deletes random pods on one node of each kind: every pod must get the brute
// force's best set, or be refused if there is none.
func (e *testEnv) testSequences(t *testing.T) {
	const steps = 14
	policies := []string{"", "best-effort", "none", "restricted", "single-numa-node"}
	links := []string{"", "", "NVLINK", "NODE", "PIX"}
	for i, machine := range []string{"dgx1-v100", "hgx-a100-4", "l40s-8", "h200-nvl-8", "power9-v100-4", "rtx4090-8"} {
		p := bothWrites[i%len(bothWrites)]
		t.Run(machine+" "+p, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			s := e.slot(t, e.freshName("sequence"), machine)
			live := map[string]*choice{}
			boundPods, refusedPods := 0, 0
			for step := range steps {
				if len(live) > 0 && rng.IntN(3) == 0 {
					name := slices.Sorted(maps.Keys(live))[rng.IntN(len(live))]
					e.remove(t, name)
					s.giveBack(live[name])
					delete(live, name)
				}
				a := notes{}
				if v := policies[rng.IntN(len(policies))]; v != "" {
					a[podrequest.TopologyPolicyKey] = v
				}
				if v := links[rng.IntN(len(links))]; v != "" {
					a[podrequest.MinLinkKey] = v
				}
				pod := gpuPod(s.node+"-"+strconv.Itoa(step), p, 1+rng.IntN(4)).Annotations(a).NodeSelector(host(s.node)).Obj()
				e.create(t, pod)
				if _, ok := s.best(t, pod); ok {
					live[pod.Name] = s.take(t, e.bound(t, pod.Name))
					boundPods++
				} else {
					e.refused(t, pod.Name)
					e.remove(t, pod.Name)
					refusedPods++
				}
			}
			t.Logf("%d pods bound, %d refused", boundPods, refusedPods)
			if boundPods == 0 {
				t.Error("no pod was bound: nothing was tested")
			}
		})
	}
}

// freshName returns a name that no object of the cluster has had.
func (e *testEnv) freshName(prefix string) string {
	e.names++
	return fmt.Sprintf("%s-%03d", prefix, e.names)
}
