// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// period is the exporter's interval in these tests.
const period = 2 * time.Second

// patient is an exporter's source: a machine whose hardware the test breaks.
type patient struct {
	events chan exporter.Event

	mu    sync.Mutex
	graph *nvtopo.Graph
}

func (p *patient) Graph(context.Context) (*nvtopo.Graph, []exporter.Problem, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.graph, nil, nil
}

func (p *patient) Events(context.Context) <-chan exporter.Event { return p.events }

// ill returns a changed copy of a graph.
func ill(t *testing.T, g *nvtopo.Graph, change func(gpus []nvtopo.GPU, links map[[2]int]nvtopo.Link)) *nvtopo.Graph {
	t.Helper()
	gpus := append([]nvtopo.GPU(nil), g.GPUs...)
	links := map[[2]int]nvtopo.Link{}
	for j := range g.GPUs {
		for i := range j {
			links[[2]int{i, j}] = g.Link(i, j)
		}
	}
	change(gpus, links)
	out, err := nvtopo.NewGraph(gpus, g.NUMANodes, nil, links)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// becomes gives the machine another state; with an event the exporter reads it at once.
func (p *patient) becomes(g *nvtopo.Graph, withEvent bool) {
	p.mu.Lock()
	p.graph = g
	p.mu.Unlock()
	if withEvent {
		p.events <- exporter.Event{Xid: 79}
	}
}

// sickbay is a node of such a machine.
type sickbay struct {
	*testEnv
	node  string
	sound *nvtopo.Graph
	*patient
}

func newSickbay(t *testing.T, l *testEnv, name string) *sickbay {
	t.Helper()
	spec := l.addNode(t, name, "dgx1-v100")
	g := ill(t, l.graphs[name], func([]nvtopo.GPU, map[[2]int]nvtopo.Link) {}) // without adapters, which name all GPUs
	s := &sickbay{testEnv: l, node: spec.Name, sound: g, patient: &patient{events: make(chan exporter.Event), graph: g}}
	l.graphs[name] = g
	cfg, err := l.NodeBoundConfig(t.Context(), systemNamespace, "nvtopo-exporter", name)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e, err := exporter.New(exporter.Config{NodeName: name, Namespace: systemNamespace, Interval: period}, s.patient, kube, dyn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the exporter ended with %v", err)
		}
	})
	return s
}

// put binds a pod to the node and returns its GPUs.
func (s *sickbay) put(t *testing.T, name string, gpus int, annotations notes) nvtopo.Mask {
	t.Helper()
	s.create(t, gpuPod(name, preBindProfile, gpus).Annotations(annotations).NodeSelector(host(s.node)).Obj())
	g, _, _ := s.Graph(t.Context())
	return choiceOf(t, s.bound(t, name), g).set
}

// told waits for an event of a reason on a pod that contains all of these texts, and checks that it is
// the only one.
func (s *sickbay) told(t *testing.T, pod, reason string, names ...string) {
	t.Helper()
	var notes []string
	testkit.Eventually(t, waitLimit, "an event "+reason+" on pod "+pod, func(ctx context.Context) (bool, string) {
		list, err := s.client.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		notes = nil
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.Name == pod && e.Reason == reason {
				notes = append(notes, e.Note)
			}
		}
		return len(notes) > 0, "none"
	})
	if len(notes) != 1 {
		t.Errorf("%d events %s on pod %s, want one: %q", len(notes), reason, pod, notes)
	}
	for _, name := range append(names, pod) {
		if !strings.Contains(notes[0], name) {
			t.Errorf("the event %s does not name %s: %s", reason, name, notes[0])
		}
	}
}

func (s *sickbay) uuid(p int) string { return s.sound.GPUs[p].UUID }

// TestHardwareFaults breaks the hardware under an exporter, the scheduler and its controller, which have
// the rights of the shipped accounts and keep running.
func TestHardwareFaults(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.startScheduler(t, profile{name: preBindProfile, write: "PreBind"})
	t.Run("a GPU is lost", func(t *testing.T) { newSickbay(t, l, "lost").testLost(t) })
	t.Run("a link is down", func(t *testing.T) { newSickbay(t, l, "link").testLinkDown(t) })
	t.Run("GPUs are degraded", func(t *testing.T) { newSickbay(t, l, "degraded").testDegraded(t) })
	t.Run("a GPU is partitioned", func(t *testing.T) { newSickbay(t, l, "mig").testPartitioned(t) })
	t.Run("a GPU is taken out", func(t *testing.T) { newSickbay(t, l, "removed").testRemoved(t) })
}

func (s *sickbay) testLost(t *testing.T) {
	t.Helper()
	pair := s.put(t, "lost-pair", 2, nil)
	sick := pair.First()
	start := time.Now()
	s.becomes(ill(t, s.sound, func(gpus []nvtopo.GPU, _ map[[2]int]nvtopo.Link) { gpus[sick].Unhealthy = "GPU is lost: test" }), true)
	s.told(t, "lost-pair", "GPULost", s.uuid(sick))
	t.Logf("the pod was told %v after the loss", time.Since(start).Round(10*time.Millisecond))
	s.remove(t, "lost-pair")
	if got := s.put(t, "lost-seven", 7, nil); got.Has(sick) {
		t.Errorf("GPUs %v were given out, and %d is lost", got.Positions(), sick)
	}
	waiting := gpuPod("lost-waiting", preBindProfile, 1).NodeSelector(host(s.node)).Obj()
	s.wantRefused(t, waiting, placement.FewGPUs.String())
	s.becomes(s.sound, true)
	if got := choiceOf(t, s.bound(t, waiting.Name), s.sound).set; got != nvtopo.MaskOf(sick) {
		t.Errorf("after the recovery the waiting pod has %v, want %d", got.Positions(), sick)
	}
}

func (s *sickbay) testLinkDown(t *testing.T) {
	t.Helper()
	pair := s.put(t, "link-pair", 2, notes{podrequest.MinLinkKey: "NVLINK"})
	a, b := pair.Positions()[0], pair.Positions()[1]
	s.becomes(ill(t, s.sound, func(_ []nvtopo.GPU, links map[[2]int]nvtopo.Link) {
		pcie := links[[2]int{a, b}].PCIe
		links[[2]int{a, b}] = nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: pcie}, pcie, 3, 0, false)
	}), false) // seen by the next reading
	s.told(t, "link-pair", "LinkDegraded", s.uuid(a), s.uuid(b), "link class")
	s.remove(t, "link-pair")
	// The same pair is no longer the best.
	if got := s.put(t, "link-next", 2, notes{podrequest.MinLinkKey: "NVLINK"}); got == pair {
		t.Errorf("the pair %v, whose link is down, was given to a pod that asks for NVLink", got.Positions())
	}
	s.put(t, "link-rest", 6, nil)
	s.remove(t, "link-next")
	s.remove(t, "link-rest")
	s.becomes(s.sound, false)
	testkit.Eventually(t, waitLimit, "the pair is the best again", func(context.Context) (bool, string) {
		name := s.freshName("link-again")
		got := s.put(t, name, 2, notes{podrequest.MinLinkKey: "NVLINK"})
		s.remove(t, name)
		testkit.Naps(settleTime)
		return got == pair, fmt.Sprint(got.Positions())
	})
}

func (s *sickbay) testDegraded(t *testing.T) {
	t.Helper()
	six := s.put(t, "degraded-six", 6, nil)
	left := nvtopo.FullMask(8) &^ six
	inSix := six.First()
	s.becomes(ill(t, s.sound, func(gpus []nvtopo.GPU, _ map[[2]int]nvtopo.Link) {
		for p := range (left | nvtopo.MaskOf(inSix)).All() {
			gpus[p].Degraded = "NVLink error: Xid 74"
		}
	}), true)
	s.told(t, "degraded-six", "GPUDegraded", s.uuid(inSix), "Xid 74")
	two := gpuPod("degraded-two", preBindProfile, 2).NodeSelector(host(s.node)).Obj()
	s.wantRefused(t, two, placement.DegradedGPUs.String())
	if got := s.put(t, "degraded-one", 1, nil); got&^left != 0 {
		t.Errorf("the pod of one GPU has %v, want one of %v", got.Positions(), left.Positions())
	}
	s.remove(t, "degraded-one")
	s.becomes(s.sound, true)
	if got := choiceOf(t, s.bound(t, two.Name), s.sound).set; got != left {
		t.Errorf("after the recovery the pod of two has %v, want %v", got.Positions(), left.Positions())
	}
	s.told(t, "degraded-six", "GPURecovered", s.uuid(inSix))
}

func (s *sickbay) testPartitioned(t *testing.T) {
	t.Helper()
	pair := s.put(t, "mig-pair", 2, nil)
	sick := pair.First()
	s.becomes(ill(t, s.sound, func(gpus []nvtopo.GPU, _ map[[2]int]nvtopo.Link) { gpus[sick].MIG = true }), true)
	s.told(t, "mig-pair", "GPUPartitioned", s.uuid(sick))
	s.remove(t, "mig-pair")
	s.wantRefused(t, gpuPod("mig-eight", preBindProfile, 8).NodeSelector(host(s.node)).Obj(), placement.FewGPUs.String())
	s.becomes(s.sound, true)
	s.bound(t, "mig-eight")
}

func (s *sickbay) testRemoved(t *testing.T) {
	t.Helper()
	s.put(t, "removed-all", 8, nil)
	s.becomes(ill(t, s.sound, func(gpus []nvtopo.GPU, _ map[[2]int]nvtopo.Link) {
		gpus[7].Unhealthy = "GPU is lost: the driver no longer lists it"
	}), true)
	s.told(t, "removed-all", "GPULost", s.uuid(7))
	// Later the exporter leaves it out, and the pod's allocation names a missing GPU.
	seven, err := nvtopo.NewGraph(s.sound.GPUs[:7], s.sound.NUMANodes, nil, linksOf(s.sound, 7))
	if err != nil {
		t.Fatal(err)
	}
	s.becomes(seven, true)
	s.wantRefused(t, gpuPod("removed-next", preBindProfile, 1).NodeSelector(host(s.node)).Obj(), "Insufficient "+string(gpuResource))
	s.remove(t, "removed-all")
	if got := choiceOf(t, s.bound(t, "removed-next"), seven).set; got.Len() != 1 {
		t.Errorf("the next pod has %v, want one GPU", got.Positions())
	}
	s.becomes(s.sound, true)
	if got := s.put(t, "removed-back", 7, nil); !got.Has(7) {
		t.Errorf("the pod of seven has %v without the GPU that is back", got.Positions())
	}
}

func linksOf(g *nvtopo.Graph, n int) map[[2]int]nvtopo.Link {
	links := map[[2]int]nvtopo.Link{}
	for j := range n {
		for i := range j {
			links[[2]int{i, j}] = g.Link(i, j)
		}
	}
	return links
}
