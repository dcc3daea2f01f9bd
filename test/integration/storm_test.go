// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	stormPods  = 500
	stormNodes = 64
	// stormCreators create pods at the same time.
	stormCreators = 16
	stormPoll     = 200 * time.Millisecond
	// stormShare is the least share of the pods that must find room. All GPUs
	// asked for are about as many as there are.
	stormShare = 0.9
)

// stormMachines is the mix of nodes: of 64, 28 have 16 GPUs, 28 have 8, 8 have 4.
var stormMachines = []string{
	"dgx2", "dgx1-v100", "dgx2", "l40s-8", "dgx2", "hgx-h200", "dgx2", "a100-pcie-4-bridged",
	"dgx2", "h200-nvl-8", "dgx2", "dgx-a100", "dgx2", "rtx4090-8", "v100-pcie-8", "hgx-b200",
}

// storm is one run of pods over the nodes.
type storm struct {
	*testEnv
	oracles map[string]*oracle.Oracle // machine -> brute force; equal for all nodes of it
	machine map[string]string         // node name -> machine
}

// TestStorm creates 500 pods at once for two profiles on 64 nodes and kills the
// scheduler twice meanwhile, in both ways of writing annotations, and where it announces
// the node in another write before.
func TestStorm(t *testing.T) {
	l := testEnvOn(t, startAlone(t, devcluster.Config{}))
	l.install(t)
	s := &storm{testEnv: l, oracles: map[string]*oracle.Oracle{}, machine: map[string]string{}}
	var specs []devcluster.NodeSpec
	for i := range stormNodes {
		spec := l.addNode(t, fmt.Sprintf("node-%02d", i), stormMachines[i%len(stormMachines)])
		specs = append(specs, spec)
		s.machine[spec.Name] = spec.Machine
		if s.oracles[spec.Machine] == nil {
			s.oracles[spec.Machine] = oracle.New(l.graphs[spec.Name])
		}
	}
	l.publish(t, devcluster.ExporterOptions{}, specs...)
	for _, way := range []struct {
		name, write string
		flags       []string
	}{
		{name: "PreBind", write: "PreBind"},
		{name: "PreBind, announced", write: "PreBind", flags: []string{announcing}},
		{name: "Binding", write: "Binding"},
	} {
		s.schedulerFlags = way.flags
		t.Run(way.name, func(t *testing.T) { s.run(t, way.write) })
		if err := l.client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *storm) run(t *testing.T, write string) {
	t.Helper()
	names := []string{"storm-a", "storm-b"}
	sched := s.startScheduler(t, profile{name: names[0], write: write}, profile{name: names[1], write: write})
	pods := stormLoad(rand.New(rand.NewPCG(2, 0)), names)

	start := time.Now()
	var g errgroup.Group
	g.SetLimit(stormCreators)
	created := make(chan error, 1)
	go func() {
		for _, pod := range pods {
			g.Go(func() error {
				_, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{})
				return err
			})
		}
		created <- g.Wait()
	}()
	var down time.Duration
	for _, share := range []int{5, 2} { // after a fifth and a half of the pods
		testkit.Eventually(t, waitLimit, "pods are bound before the kill", func(ctx context.Context) (bool, string) {
			n := s.countBound(ctx, t)
			return n >= stormPods/share, fmt.Sprint(n, " bound")
		})
		killed := time.Now()
		if err := sched.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := sched.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		down += time.Since(killed)
	}
	if err := <-created; err != nil {
		t.Fatal(err)
	}

	// Done is when no pending pod fits a node any more: well before the five
	// minutes after which pods that nothing woke are retried.
	var live []v1.Pod
	last, lastAt := -1, start
	testkit.Eventually(t, waitLimit, "every pod that fits is bound", func(ctx context.Context) (bool, string) {
		live = s.list(ctx, t)
		n := 0
		for i := range live {
			if live[i].Spec.NodeName != "" {
				n++
			}
		}
		if n != last {
			last, lastAt = n, time.Now()
			return false, fmt.Sprint(n, " bound")
		}
		free := s.freeSets(t, live)
		for i := range live {
			if pod := &live[i]; pod.Spec.NodeName == "" {
				if node := s.fitsSomewhere(t, pod, free); node != "" {
					return false, fmt.Sprintf("%d bound; pod %s (%v) fits node %s; the scheduler says %q", n, pod.Name, pod.Annotations, node, refusal(pod))
				}
			}
		}
		return true, ""
	})
	if err := sched.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	// Once more, with nobody left who could change anything.
	live = s.list(t.Context(), t)
	free := s.freeSets(t, live)
	s.keepsPromises(t, last, names...)
	total, idle := 0, 0
	for node, f := range free {
		total += s.graphs[node].Len()
		idle += f.Len()
	}
	t.Logf("chosen within, by tenths of the pods: %s", tenths(start, live))
	took := lastAt.Sub(start)
	t.Logf("%s: %d pods, %d bound on %d nodes in %.1f s (%.1f s of them without a scheduler, 2 kills): %.0f pods/s; %d of %d GPUs used",
		write, len(live), last, stormNodes, took.Seconds(), down.Seconds(), float64(last)/(took-down).Seconds(), total-idle, total)
	if len(live) != stormPods || float64(last) < stormShare*stormPods {
		t.Errorf("%d of %d pods are bound, want at least %.0f %% of %d", last, len(live), stormShare*100, stormPods)
	}
}

// tenths lists after how many seconds each tenth of the bound pods had its choice.
func tenths(start time.Time, pods []v1.Pod) string {
	var at []float64
	for i := range pods {
		if a, err := allocation.Parse(pods[i].Annotations[allocation.Key]); err == nil && pods[i].Spec.NodeName != "" {
			at = append(at, a.Assumed.Sub(start).Seconds())
		}
	}
	slices.Sort(at)
	var b strings.Builder
	for i := 1; i <= 10; i++ {
		fmt.Fprintf(&b, "%.1f ", at[len(at)*i/10-1])
	}
	return b.String()
}

// stormLoad makes the pods: 1, 2, 3, 4 or 8 GPUs, some in several containers,
// half of each profile, a third with a demand on links or NUMA nodes.
func stormLoad(rng *rand.Rand, profiles []string) []*v1.Pod {
	sizes := []struct{ gpus, share int }{{1, 74}, {2, 17}, {3, 4}, {4, 3}, {8, 2}}
	wishes := []notes{
		nil, nil, nil, nil, nil, nil,
		{podrequest.MinLinkKey: "NVLINK"},
		{podrequest.TopologyPolicyKey: "single-numa-node"},
		{podrequest.TopologyPolicyKey: "restricted"},
		{podrequest.NUMAAffinityKey: "preferred"},
		{podrequest.MinBandwidthKey: "20"},
	}
	pods := make([]*v1.Pod, stormPods)
	for i := range pods {
		pick, gpus := rng.IntN(100), 0
		for _, s := range sizes {
			if gpus = s.gpus; pick < s.share {
				break
			}
			pick -= s.share
		}
		name := fmt.Sprintf("pod-%03d", i)
		containers := []v1.Container{container("main", gpus)}
		var initial []v1.Container
		switch rng.IntN(6) {
		case 0: // two containers share them
			if gpus > 1 {
				containers = []v1.Container{container("left", gpus/2), container("right", gpus-gpus/2)}
			}
		case 1:
			initial = []v1.Container{container("prepare", 1)}
		}
		pods[i] = gpuPod(name, profiles[i%len(profiles)], 0).Annotations(wishes[rng.IntN(len(wishes))]).Containers(containers...).Obj()
		pods[i].Spec.InitContainers = initial
	}
	return pods
}

// list reads all pods, at intervals that leave the machine to the scheduler.
func (s *storm) list(ctx context.Context, t *testing.T) []v1.Pod {
	t.Helper()
	time.Sleep(stormPoll)
	list, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func (s *storm) countBound(ctx context.Context, t *testing.T) int {
	t.Helper()
	n := 0
	for _, pod := range s.list(ctx, t) {
		if pod.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// freeSets derives from the annotations of all bound pods what is free on each
// node, and fails on the first pod whose annotations do not fit its node's
// graph and on the first GPU that two pods have.
func (s *storm) freeSets(t *testing.T, pods []v1.Pod) map[string]nvtopo.Mask {
	t.Helper()
	free := map[string]nvtopo.Mask{}
	owner := map[string]string{} // UUID -> pod
	for node, g := range s.graphs {
		free[node] = nvtopo.FullMask(g.Len())
	}
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName == "" {
			continue
		}
		g := s.graphs[pod.Spec.NodeName]
		c, err := readChoice(pod, s.oracles[s.machine[pod.Spec.NodeName]], g)
		if err != nil {
			t.Fatalf("pod %s: %v", pod.Name, err)
		}
		if allowed := constraintOf(t, pod); !s.oracles[s.machine[pod.Spec.NodeName]].Permits(c.set, allowed) {
			t.Fatalf("pod %s (%v) on node %s has GPUs %v, which its annotations do not permit", pod.Name, pod.Annotations, pod.Spec.NodeName, c.set.Positions())
		}
		for p := range c.set.All() {
			if other, taken := owner[g.GPUs[p].UUID]; taken {
				testkit.Violation(t, "GPU %d of node %s belongs to both %s and %s", p, pod.Spec.NodeName, other, pod.Name)
				t.FailNow()
			}
			owner[g.GPUs[p].UUID] = pod.Name
		}
		free[pod.Spec.NodeName] &^= c.set
	}
	return free
}

// fitsSomewhere names a node with a set of free GPUs that a pod accepts, or
// none. CPU and memory are plentiful in this load.
func (s *storm) fitsSomewhere(t *testing.T, pod *v1.Pod, free map[string]nvtopo.Mask) string {
	t.Helper()
	c := constraintOf(t, pod)
	total := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	k := int(total.Name(gpuResource, "").Value())
	for node, f := range free {
		if f.Len() >= k && anySet(f, k, func(set nvtopo.Mask) bool { return s.oracles[s.machine[node]].Permits(set, c) }) {
			return node
		}
	}
	return ""
}

// anySet reports whether ok accepts a subset of size k.
func anySet(f nvtopo.Mask, k int, ok func(nvtopo.Mask) bool) bool {
	var walk func(rest, taken nvtopo.Mask) bool
	walk = func(rest, taken nvtopo.Mask) bool {
		if taken.Len() == k {
			return ok(taken)
		}
		if rest.Len() < k-taken.Len() {
			return false
		}
		first := nvtopo.MaskOf(rest.First())
		return walk(rest&^first, taken|first) || walk(rest&^first, taken)
	}
	return walk(f, 0)
}
