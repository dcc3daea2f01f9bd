// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// The profiles of the scheduler that TestChoiceAcrossNodes runs, beside bothWrites.
const (
	sampledProfile = "sampled" // looks at 5 % of the nodes
	wideProfile    = "wide"    // as sampled, but never narrows
	openProfile    = "open"    // lets pods without GPUs onto every node
)

// A bridged machine has two pairs of GPUs joined by NVLink: two GPUs of a pair
// are the best there is. On a broken one, one GPU of each pair is unhealthy, so
// that two GPUs can only be had over PCIe, in the lowest band.
const bridged = "a100-pcie-4-bridged"

var brokenGPUs = nvtopo.MaskOf(1, 3)

// listRefused is in what a pod shows before it is tried on all nodes.
const listRefused = "all nodes are tried next"

// across is a cluster in which the nodes that PreFilter lists are known: good
// nodes are bridged, poor ones broken.
type across struct {
	*testEnv
	scheduler  *devcluster.Scheduler
	good, poor []string
}

// TestChoiceAcrossNodes runs what is about the choice among many nodes on one
// cluster with one scheduler.
func TestChoiceAcrossNodes(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.priorities(t, map[string]int32{"low": 10, "high": 1000})
	a := &across{testEnv: l, good: []string{"good-0", "good-1", "good-2"}, poor: []string{"poor-0", "poor-1", "poor-2"}}
	a.bridgedNodes(t, t, 0, a.good...)
	a.bridgedNodes(t, t, brokenGPUs, a.poor...)
	a.scheduler = l.startScheduler(t,
		profile{name: preBindProfile, write: "PreBind"},
		profile{name: bindingProfile, write: "Binding"},
		profile{name: sampledProfile, write: "PreBind", percentage: 5},
		profile{name: wideProfile, write: "PreBind", percentage: 5, args: map[string]string{topologyPlugin: "narrowTo: 0"}},
		profile{name: openProfile, write: "PreBind", args: map[string]string{topologyPlugin: "reserveGPUNodes: false"}},
	)
	a.awaitOpen(t, append(slices.Clone(a.good), a.poor...), func() *v1.Pod { return wish(preBindProfile, 2, nil).Obj() })
	t.Run("every listed node is knocked out", a.testKnockOuts)
	t.Run("no node is left", a.testNoNodeLeft)
	t.Run("preemption behind a knock-out", a.testPreemptionBehindKnockOut)
	t.Run("preemption on a full cluster", a.testPreemptionAcross)
	t.Run("pods without GPUs", a.testReservedNodes)
	t.Run("machines of 16 and 20 GPUs", a.testLargeMachines)
	t.Run("a sample of the nodes", func(t *testing.T) { a.testSampled(t) })
}

// bridgedNodes makes nodes and publishes them with some GPUs unhealthy, as long
// as owner runs. The label says which kind they are.
func (a *across) bridgedNodes(t, owner *testing.T, broken nvtopo.Mask, names ...string) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	graphs := make([]*nvtopo.Graph, len(names))
	for i, name := range names {
		g.Go(func() error {
			spec := devcluster.NodeSpec{Name: name, Machine: bridged, Labels: map[string]string{"kind": strings.Split(name, "-")[0]}}
			graph, err := spec.Graph()
			if err != nil {
				return err
			}
			for p := range broken.All() {
				graph.GPUs[p].Unhealthy = "GPU is lost"
			}
			graphs[i] = graph
			if _, err := a.AddNode(t.Context(), spec); err != nil {
				return err
			}
			return a.keepPublished(owner, name, graph)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		a.graphs[name] = graphs[i]
	}
}

// keepPublished publishes a graph that is not the catalogue's and keeps up its
// Leases until the end of the test.
func (l *testEnv) keepPublished(t *testing.T, node string, g *nvtopo.Graph) error {
	t.Helper()
	dyn, err := dynamic.NewForConfig(l.RESTConfig())
	if err != nil {
		return err
	}
	e, err := exporter.New(exporter.Config{NodeName: node, Namespace: systemNamespace, AssumeEnforced: true}, exporter.Static(g), l.client, dyn)
	if err != nil {
		return err
	}
	if err := e.PublishOnce(t.Context()); err != nil {
		return fmt.Errorf("publish node %s: %w", node, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Run(t.Context()) // it logs what goes wrong, and a stale graph fails the test
	}()
	t.Cleanup(func() { <-done })
	return nil
}

// placed makes a pod without a scheduler, on the node at once.
func (e *testEnv) placed(t *testing.T, node string, pod *v1.Pod) {
	t.Helper()
	pod.Spec.NodeName = node
	e.create(t, pod)
}

// awaitShut waits until the scheduler knows that nodes are closed, and awaitOpen
// that they are open, to the pods that probe makes: only it can say what it has heard.
func (e *testEnv) awaitShut(t *testing.T, nodes []string, probe func() *v1.Pod) {
	t.Helper()
	for _, node := range nodes {
		// A probe that comes before the news is bound: the next one may not be.
		testkit.Eventually(t, waitLimit, "node "+node+" is closed", func(context.Context) (bool, string) {
			pod := probe()
			pod.Spec.NodeSelector = host(node)
			pod.Name = e.freshName("probe")
			e.create(t, pod)
			defer e.drop(t, pod.Name)
			return e.tried(t, pod.Name), "bound"
		})
	}
}

// tried waits until a pod is bound or refused by all nodes, and reports the latter.
// The scheduler compares with a copy of the pod before it writes a condition, which
// may be so old that it leaves the message of a list refused there for good.
func (e *testEnv) tried(t *testing.T, name string) (isRefused bool) {
	t.Helper()
	start, since := time.Now(), time.Time{}
	testkit.Eventually(t, waitLimit, "pod "+name+" is tried", func(context.Context) (bool, string) {
		pod := e.get(t, name)
		got := refusal(pod)
		if got == "" && time.Since(start) > time.Minute { // it is somewhere: say where
			return pod.Spec.NodeName != "", fmt.Sprintf("no condition says why not; its status is %+v; %s", pod.Status, e.pending(t))
		}
		if got != "" && since.IsZero() {
			since = time.Now()
		}
		isRefused = got != "" && (!strings.Contains(got, listRefused) || time.Since(since) > 10*time.Second)
		return isRefused || pod.Spec.NodeName != "", got
	})
	return isRefused
}

// pending says how many pods are in which part of each scheduler's queue, and how many attempts there were.
func (e *testEnv) pending(t *testing.T) string {
	t.Helper()
	var out []string
	for _, s := range e.Schedulers() {
		for _, x := range e.scrape(t, s) {
			name, _, _ := strings.Cut(x.series, "{")
			if slices.Contains([]string{"scheduler_pending_pods", "scheduler_schedule_attempts_total", "scheduler_unschedulable_pods"}, name) {
				out = append(out, fmt.Sprintf("%s %g", x.series, x.value))
			}
		}
	}
	return strings.Join(out, ", ")
}

func (e *testEnv) awaitOpen(t *testing.T, nodes []string, probe func() *v1.Pod) {
	t.Helper()
	for _, node := range nodes {
		pod := probe()
		pod.Spec.NodeSelector = host(node)
		pod.Name = e.freshName("probe")
		e.create(t, pod)
		e.bound(t, pod.Name)
		e.drop(t, pod.Name)
	}
}

// drop deletes pods and does not wait: what is created later reaches the
// scheduler later, as both come over one watch.
func (e *testEnv) drop(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
	}
}

// dropAll deletes every pod.
func (e *testEnv) dropAll(t *testing.T) {
	t.Helper()
	err := e.client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(t.Context(),
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// evictions are the pods of before that are gone, going or marked for it now.
func (e *testEnv) evictions(t *testing.T, before []v1.Pod) []string {
	t.Helper()
	now := map[string]*v1.Pod{}
	pods := e.pods(t)
	for i := range pods {
		now[pods[i].Name] = &pods[i]
	}
	var out []string
	for i := range before {
		pod := now[before[i].Name]
		if pod == nil || pod.UID != before[i].UID || pod.DeletionTimestamp != nil || slices.ContainsFunc(pod.Status.Conditions,
			func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }) {
			out = append(out, before[i].Name)
		}
	}
	return out
}

func (e *testEnv) pods(t *testing.T) []v1.Pod {
	t.Helper()
	list, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// counts are the counters that tell what narrowing did.
type counts struct{ listed, recovered, preemptions float64 }

func (a *across) counts(t *testing.T) counts {
	t.Helper()
	s := a.scrape(t, a.scheduler)
	const narrowings = "scheduler_nvtopo_narrowings_total"
	return counts{
		s.sum(narrowings, `outcome="listed"`), s.sum(narrowings, `outcome="recovered"`), s.sum("scheduler_preemption_attempts_total"),
	}
}

// wantUndisturbed creates a pod and returns it once it is bound, without the retry of
// everybody that comes after five minutes, with nobody evicted and nothing tried that would
// have evicted somebody.
func (a *across) wantUndisturbed(t *testing.T, pod *v1.Pod) (*v1.Pod, counts) {
	t.Helper()
	a.awaitTurn(t)
	before, pods := a.counts(t), a.pods(t)
	start := time.Now()
	a.create(t, pod)
	got := a.bound(t, pod.Name)
	took := time.Since(start)
	after := a.counts(t)
	delta := counts{after.listed - before.listed, after.recovered - before.recovered, after.preemptions - before.preemptions}
	t.Logf("%s is on %s after %d ms; lists: %.0f, of them recovered from: %.0f",
		pod.Name, got.Spec.NodeName, took.Milliseconds(), delta.listed, delta.recovered)
	if evicted := a.evictions(t, pods); len(evicted) > 0 {
		t.Errorf("evicted: %v", evicted)
	}
	if delta.preemptions != 0 {
		t.Errorf("%.0f preemptions were tried", delta.preemptions)
	}
	// A PreBind that waits makes the scheduler nominate the node it binds to.
	if n := got.Status.NominatedNodeName; n != "" && n != got.Spec.NodeName {
		t.Errorf("the pod was nominated to %s", n)
	}
	return got, delta
}

// awaitTurn waits until the scheduler is done with every pod that was deleted before: it
// tries one pod at a time, and may have begun with a deleted one that it had heard of.
func (a *across) awaitTurn(t *testing.T) {
	t.Helper()
	pod := wish(openProfile, 0, nil).Obj()
	pod.Name = a.freshName("turn")
	a.create(t, pod)
	a.bound(t, pod.Name)
	a.drop(t, pod.Name)
}

// afterNews is how often a pod may be tried that no node takes. What changed of a node is looked
// at when the first pod waits, and is news for a second, in which the pod is woken each 250 ms:
// five times, and once more if it was on its way when it was woken. A pod that goes round
// without end is tried some hundred times a second.
const afterNews = 7

// testNoNodeLeft takes a pod's port on every node, by pods as important as it is:
// one list in vain, one attempt on all nodes, and then it waits for a change.
func (a *across) testNoNodeLeft(t *testing.T) {
	for _, p := range bothWrites {
		t.Run(p, func(t *testing.T) {
			defer a.dropAll(t)
			for _, node := range append(slices.Clone(a.good), a.poor...) {
				a.placed(t, node, gpuPod(a.freshName("filler"), "", 0).With(withPort).PriorityClass("low").Obj())
			}
			a.awaitShut(t, append(slices.Clone(a.good), a.poor...), func() *v1.Pod { return wish(p, 2, withPort).PriorityClass("low").Obj() })
			before := a.counts(t)
			pod := wish(p, 2, withPort).PriorityClass("low").Obj()
			pod.Name = a.freshName("stuck")
			a.create(t, pod)
			if !a.tried(t, pod.Name) {
				t.Fatal("the pod is bound")
			}
			testkit.Eventually(t, waitLimit, "a list is recovered from", func(context.Context) (bool, string) {
				return a.counts(t).recovered > before.recovered, "none"
			})
			time.Sleep(3 * time.Second) // above the configured backoff: who goes round without end goes on
			if got := a.counts(t).recovered - before.recovered; got > afterNews {
				t.Errorf("%.0f lists were recovered from, want %d at most", got, afterNews)
			}
		})
	}
}

// testPreemptionBehindKnockOut closes the good nodes, though their GPUs are free,
// and fills the poor: the list is in vain, so is the attempt without one, and the
// pod has to evict. Nominated to a node that no list would have, it gets it.
func (a *across) testPreemptionBehindKnockOut(t *testing.T) {
	for _, p := range bothWrites {
		t.Run(p, func(t *testing.T) {
			defer a.dropAll(t)
			for _, node := range a.good { // whose port the preemptor wants, and may not take
				a.placed(t, node, gpuPod(a.freshName("filler"), "", 0).With(withPort).PriorityClass("high").Obj())
			}
			a.awaitShut(t, a.good, func() *v1.Pod { return wish(p, 2, withPort).PriorityClass("low").Obj() })
			holders := map[string]string{} // node -> the pod that has its GPUs
			for _, node := range a.poor {
				pod := gpuPod(a.freshName("holder"), p, 2).PriorityClass("low").NodeSelector(host(node)).Obj()
				// No kubelet ends it, so that it stays until the test says so.
				pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
				a.create(t, pod)
				a.bound(t, pod.Name)
				holders[node] = pod.Name
			}
			pods, before := a.pods(t), a.counts(t)
			start := time.Now()
			name := a.freshName("preemptor")
			preemptor := wish(p, 2, withPort).PriorityClass("high").Obj()
			preemptor.Name = name
			a.create(t, preemptor)
			var node string
			testkit.Eventually(t, waitLimit, "the pod is nominated and its victim told to go", func(context.Context) (bool, string) {
				pod := a.get(t, name)
				node = pod.Status.NominatedNodeName
				return node != "" && len(a.evictions(t, pods)) > 0, fmt.Sprintf("nominated to %q; %s", node, refusal(pod))
			})
			t.Logf("nominated to %s after %d ms", node, time.Since(start).Milliseconds())
			if got := a.evictions(t, pods); !slices.Equal(got, []string{holders[node]}) {
				t.Errorf("evicted: %v, want %s alone", got, holders[node])
			}
			if after := a.counts(t); after.recovered == before.recovered {
				t.Error("no list was recovered from: the good nodes were not listed")
			}
			start = time.Now()
			a.drop(t, holders[node])
			got := a.bound(t, name)
			t.Logf("bound %d ms after its victim was gone", time.Since(start).Milliseconds())
			if got.Spec.NodeName != node {
				t.Errorf("the pod is on %s, was nominated to %s", got.Spec.NodeName, node)
			}
			delete(holders, node)
			for _, holder := range holders {
				if pod := a.get(t, holder); pod.DeletionTimestamp != nil {
					t.Errorf("%s is evicted too", holder)
				}
			}
			a.dropAll(t)
		})
	}
}

// testPreemptionAcross fills every GPU with low-priority pods. A pod that needs a
// bridged pair, wherever it is, must evict the two pods of one and nobody else.
func (a *across) testPreemptionAcross(t *testing.T) {
	for _, p := range bothWrites {
		t.Run(p, func(t *testing.T) {
			has := map[string]nvtopo.Mask{} // pod -> its GPUs
			var names []string
			for _, node := range append(slices.Clone(a.good), a.poor...) {
				for range a.graphs[node].Healthy().Len() {
					pod := gpuPod(a.freshName("holder"), p, 1).PriorityClass("low").NodeSelector(host(node)).Obj()
					a.create(t, pod)
					names = append(names, pod.Name)
				}
			}
			for _, name := range names {
				pod := a.bound(t, name)
				has[name] = choiceOf(t, pod, a.graphs[pod.Spec.NodeName]).set
			}
			pods := a.pods(t)
			start := time.Now()
			preemptor := gpuPod(a.freshName("preemptor"), p, 2).Annotation(podrequest.MinLinkKey, "NVLINK").PriorityClass("high").Obj()
			a.create(t, preemptor)
			got := a.bound(t, preemptor.Name)
			t.Logf("bound after %d ms", time.Since(start).Milliseconds())
			set := choiceOf(t, got, a.graphs[got.Spec.NodeName]).set
			var freed nvtopo.Mask
			evicted := a.evictions(t, pods)
			for i := range pods {
				if slices.Contains(evicted, pods[i].Name) && pods[i].Spec.NodeName == got.Spec.NodeName {
					freed |= has[pods[i].Name]
				}
			}
			if len(evicted) != 2 || freed != set {
				t.Errorf("the pod is on %s with GPUs %v; evicted: %v, which had %v of that node",
					got.Spec.NodeName, set.Positions(), evicted, freed.Positions())
			}
			a.dropAll(t)
		})
	}
}

// testSampled has the scheduler look at a few of many nodes, nearly all of them
// poor. Only a list that comes from all nodes finds the good ones every time.
func (a *across) testSampled(t *testing.T) {
	t.Helper()
	// kube-scheduler looks at 100 nodes at least, whatever the percentage.
	const poor, pods = 150, 4
	var names []string
	for i := range poor {
		names = append(names, fmt.Sprintf("poor-%d", len(a.poor)+i))
	}
	a.bridgedNodes(t, t, brokenGPUs, names...)
	// A pod on each says that the scheduler has its graph.
	for _, node := range names {
		a.create(t, gpuPod("first-"+node, preBindProfile, 1).NodeSelector(host(node)).Obj())
	}
	for _, node := range names {
		a.bound(t, "first-"+node)
	}
	a.dropAll(t)
	best := func(p string) int {
		n := 0
		for range pods {
			pod := gpuPod(a.freshName("sampled"), p, 2).Obj()
			a.create(t, pod)
			if slices.Contains(a.good, a.bound(t, pod.Name).Spec.NodeName) {
				n++
			}
		}
		a.dropAll(t)
		return n
	}
	narrowed, wide := best(sampledProfile), best(wideProfile)
	t.Logf("of %d pods on %d nodes, %d good: %d on good nodes with narrowing, %d without", pods, poor+len(a.good)+len(a.poor), len(a.good), narrowed, wide)
	if narrowed != pods {
		t.Errorf("%d of %d pods are on good nodes", narrowed, pods)
	}
	if wide == pods {
		t.Error("without narrowing every pod is on a good node too: the sample leaves nothing out")
	}
}
