// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nodestate"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// ward is a controller, a node whose hardware the test breaks, and its pods.
type ward struct {
	t      *testing.T
	state  *nodestate.State
	graph  *nvtopo.Graph
	store  cache.Indexer
	client *fake.Clientset
	ctrl   *Controller
	last   *v1alpha1.NodeGPUTopology
	sick   map[int]v1alpha1.GPUHealth // position -> health
	mig    map[int]bool
	down   map[[2]int]bool // links that are SYS now
	less   int             // GPUs taken out at the end
	seenAt int             // events already looked at
	broken bool            // the API server takes no events
}

func newWard(t *testing.T) *ward {
	t.Helper()
	state, _ := stateOf(t, "dgx1-v100")
	w := &ward{
		t: t, state: state, store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), client: fake.NewClientset(),
		sick: map[int]v1alpha1.GPUHealth{}, mig: map[int]bool{}, down: map[[2]int]bool{},
	}
	w.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return w.broken, nil, errors.New("no server")
	})
	w.restart()
	w.publish()
	return w
}

// restart replaces the controller by a new process's.
func (w *ward) restart() {
	w.ctrl = New(w.state, w.client, corelisters.NewPodLister(w.store), events.NewFakeRecorder(100))
	if w.last != nil {
		w.ctrl.Handler().OnAdd(w.last, true)
	}
}

// publish makes an object of the hardware's condition and tells everybody.
func (w *ward) publish(records ...v1alpha1.Allocation) {
	w.t.Helper()
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := m.GraphFor(testNode)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.graph == nil {
		w.graph = g
	}
	t := v1alpha1.FromGraph(testNode, gpu, g)
	t.UID, t.Spec.NodeUID = "topology", "node"
	t.ResourceVersion, t.Generation = "2", 1
	for at, h := range w.sick {
		h.ID = t.Status.GPUHealth[at].ID
		t.Status.GPUHealth[at] = h
	}
	for at := range w.mig {
		t.Spec.GPUs[at].MIG = true
	}
	for i := range t.Spec.Links {
		if l := &t.Spec.Links[i]; w.down[[2]int{int(l.A), int(l.B)}] {
			sys := nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: nvtopo.PCIeSYS}, nvtopo.PCIeSYS, 3, 0, false)
			l.Class, l.Lanes, l.PCIe = "SYS", 0, "SYS"
			l.Bandwidth.Set(sys.Bandwidth * 1000)
		}
	}
	n := len(t.Spec.GPUs) - w.less
	t.Spec.GPUs, t.Status.GPUHealth = t.Spec.GPUs[:n], t.Status.GPUHealth[:n]
	t.Spec.Links = slices.DeleteFunc(t.Spec.Links, func(l v1alpha1.Link) bool { return int(l.B) >= n })
	t.Spec.NICs = nil
	t.Status.Allocations = records
	old := w.last
	if old != nil {
		v, err := strconv.Atoi(old.ResourceVersion)
		if err != nil {
			w.t.Fatal(err)
		}
		t.ResourceVersion, t.Generation = strconv.Itoa(v+1), old.Generation
		if !cmp.Equal(old.Spec, t.Spec) {
			t.Generation++
		}
	}
	w.last = t
	if _, err := w.state.Apply(t); err != nil {
		w.t.Fatal(err)
	}
	if old == nil {
		w.ctrl.Handler().OnAdd(t, false)
	} else {
		w.ctrl.Handler().OnUpdate(old, t)
	}
}

// run adds a pod that runs with these GPUs, promised what the graph has now.
func (w *ward) run(name string, gpus string, annotations ...string) *v1.Pod {
	w.t.Helper()
	a := allocation(w.graph, "m="+gpus)
	a.PodUID, a.Assumed = types.UID(name), time.Now().UTC()
	all, err := w.state.Annotations(a, false)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		all[annotations[i]] = annotations[i+1]
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: a.PodUID, ResourceVersion: "1", Annotations: all, CreationTimestamp: metav1.Now(),
		},
		Spec: v1.PodSpec{NodeName: testNode},
	}
	w.put(p)
	return p
}

func (w *ward) put(p *v1.Pod) {
	w.t.Helper()
	if err := w.store.Update(p); err != nil {
		w.t.Fatal(err)
	}
}

// lead runs a term of the present controller.
func (w *ward) lead() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	ctrl := w.ctrl
	go func() { defer close(done); ctrl.Run(ctx) }()
	return func() { cancel(); <-done }
}

// said returns what was written since the last call: "pod type reason GPUs".
func (w *ward) said() []string {
	w.t.Helper()
	time.Sleep(2 * sortedFor)
	synctest.Wait()
	list, err := w.client.EventsV1().Events("ns").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.SortStableFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var out []string
	for i := w.seenAt; i < len(list.Items); i++ {
		e := &list.Items[i]
		line := e.Regarding.Name + " " + e.Type + " " + e.Reason
		if !strings.Contains(e.Note, e.Regarding.Name) {
			w.t.Errorf("the note does not name its pod: %s", e.Note)
		}
		words := []string{line}
		for p := range w.graph.GPUs {
			if strings.Contains(e.Note, w.graph.GPUs[p].UUID) {
				words = append(words, strconv.Itoa(p))
			}
		}
		out = append(out, strings.Join(words, " "))
	}
	w.seenAt = len(list.Items)
	slices.Sort(out)
	return out
}

func (w *ward) expect(when string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.said()); diff != "" {
		w.t.Errorf("%s (-want,+got):\n%s", when, diff)
	}
}

// since is a health that began now.
func since(h v1alpha1.GPUHealth) v1alpha1.GPUHealth {
	h.Since = new(metav1.Now())
	return h
}

func lostGPU() v1alpha1.GPUHealth { return since(v1alpha1.GPUHealth{Reason: "GPU is lost: fell off"}) }
func linkSick() v1alpha1.GPUHealth {
	return since(v1alpha1.GPUHealth{Healthy: true, Degraded: true, Reason: "NVLink error: Xid 74"})
}

func TestRunningPodsAreToldOfTheirHardwareOnceAndOfItsRecovery(t *testing.T) {
	for name, tc := range map[string]struct {
		breakIt func(w *ward)
		mend    func(w *ward)
		want    []string
		after   []string
	}{
		"a GPU is lost": {
			breakIt: func(w *ward) { w.sick[0] = lostGPU() },
			mend:    func(w *ward) { clear(w.sick) },
			want:    []string{"pair Warning GPULost 0"},
			after:   []string{"pair Normal GPURecovered 0"},
		},
		"two GPUs of one pod fall ill": {
			breakIt: func(w *ward) {
				w.sick[0], w.sick[3] = lostGPU(), since(v1alpha1.GPUHealth{Reason: "Xid 48"})
			},
			mend:  func(w *ward) { clear(w.sick) },
			want:  []string{"pair Warning GPULost 0", "pair Warning GPUUnhealthy 3"},
			after: []string{"pair Normal GPURecovered 0", "pair Normal GPURecovered 3"},
		},
		"a GPU that two pods are said to hold": {
			breakIt: func(w *ward) {
				w.run("late", "4")
				w.sick[4] = since(v1alpha1.GPUHealth{Reason: "the driver asks for a GPU reset"})
			},
			mend:  func(w *ward) { clear(w.sick) },
			want:  []string{"late Warning GPUUnhealthy 4", "single Warning GPUUnhealthy 4"},
			after: []string{"late Normal GPURecovered 4", "single Normal GPURecovered 4"},
		},
		"GPUs are degraded under running pods": {
			breakIt: func(w *ward) { w.sick[3], w.sick[4] = linkSick(), linkSick() },
			mend:    func(w *ward) { clear(w.sick) },
			want:    []string{"pair Warning GPUDegraded 3", "single Warning GPUDegraded 4"},
			after:   []string{"pair Normal GPURecovered 3", "single Normal GPURecovered 4"},
		},
		"a GPU is partitioned": {
			breakIt: func(w *ward) { w.mig[3] = true },
			mend:    func(w *ward) { clear(w.mig) },
			want:    []string{"pair Warning GPUPartitioned 3"},
			after:   []string{"pair Normal GPURecovered 3"},
		},
		"the link of a pair is down": {
			breakIt: func(w *ward) { w.down[[2]int{0, 3}] = true },
			mend:    func(w *ward) { clear(w.down) },
			want:    []string{"pair Warning LinkDegraded 0 3"},
			after:   []string{"pair Normal LinkRecovered"},
		},
		"a GPU fails whose link is down, and the link stays down": {
			breakIt: func(w *ward) {
				w.down[[2]int{0, 3}] = true
				w.publish()
				w.expect("down", "pair Warning LinkDegraded 0 3")
				w.sick[0] = lostGPU()
				w.publish()
				w.expect("lost as well", "pair Warning GPULost 0")
				clear(w.sick)
			},
			mend:  func(w *ward) { clear(w.down) },
			want:  []string{"pair Normal GPURecovered 0"},
			after: []string{"pair Normal LinkRecovered"},
		},
		"a link that no ring goes over is down": {
			breakIt: func(w *ward) { w.down[[2]int{5, 6}] = true },
			mend:    func(w *ward) { clear(w.down) },
		},
		"a GPU is no longer part of the node": {
			breakIt: func(w *ward) {
				w.run("last", "7")
				w.said()
				w.less = 1
			},
			mend:  func(w *ward) { w.less = 0 },
			want:  []string{"last Warning GPULost 7"},
			after: []string{"last Normal GPURecovered 7"},
		},
		"lost, then degraded, is no recovery": {
			breakIt: func(w *ward) {
				w.sick[0] = lostGPU()
				w.publish()
				w.expect("lost", "pair Warning GPULost 0")
				w.sick[0] = linkSick()
			},
			mend:  func(w *ward) { clear(w.sick) },
			want:  []string{"pair Warning GPUDegraded 0"},
			after: []string{"pair Normal GPURecovered 0"},
		},
		"the driver's words differ from reading to reading": {
			breakIt: func(w *ward) {
				w.sick[0] = lostGPU()
				w.publish()
				w.expect("lost", "pair Warning GPULost 0")
				h := w.sick[0]
				h.Reason = "GPU is lost: in other words" // the exporter keeps the time
				w.sick[0] = h
			},
			mend:  func(w *ward) { clear(w.sick) },
			after: []string{"pair Normal GPURecovered 0"},
		},
		"kubelet's record and not the annotation says who holds it": {
			breakIt: func(w *ward) {
				r := recorded(w.graph, "m=1,2")
				r[0].PodUID, r[0].Pod = "pair", "pair"
				w.sick[0], w.sick[1] = lostGPU(), lostGPU()
				w.publish(r...)
				w.expect("lost", "pair Warning GPULost 1")
				w.publish(r...)
			},
			mend:  func(w *ward) { clear(w.sick) },
			after: nil, // it holds 0 and 3 again by the annotation, of which nobody was told anything
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWard(t)
				w.run("pair", "0,3")
				w.run("single", "4")
				done := w.run("done", "0,3")
				done.Status.Phase = v1.PodSucceeded
				w.put(done)
				stop := w.lead()
				defer func() { stop() }()
				w.expect("while all is well")
				time.Sleep(time.Minute)
				tc.breakIt(w)
				w.publish(w.last.Status.Allocations...)
				w.expect("at the fault", tc.want...)
				w.publish(w.last.Status.Allocations...)
				time.Sleep(10 * recheck)
				w.expect("while it lasts")
				stop()
				w.restart()
				stop = w.lead()
				w.expect("after a restart of the controller")
				tc.mend(w)
				w.publish()
				w.expect("when it is mended", tc.after...)
				time.Sleep(10 * recheck)
				w.expect("later on")
			})
		})
	}
}

func TestAPodGivenADegradedGPUIsNotWarnedOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t)
		w.sick[4] = linkSick()
		time.Sleep(time.Minute)
		w.publish()
		w.run("single", "4")
		defer w.lead()()
		w.expect("it was chosen for that")
	})
}

func TestEventsAreTriedAgainAndOldFaultsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t)
		w.run("pair", "0,3")
		stop := w.lead()
		w.broken = true
		w.sick[0] = lostGPU()
		w.publish()
		w.expect("without an API server")
		w.broken = false
		time.Sleep(time.Minute)
		w.expect("when it is back", "pair Warning GPULost 0")
		stop()
		// The API server forgets events after an hour; who starts then does not repeat.
		if err := w.client.EventsV1().Events("ns").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		w.client = fake.NewClientset()
		w.seenAt = 0
		time.Sleep(2 * eventTTL)
		w.restart()
		defer w.lead()()
		w.expect("after a restart two hours later")
		clear(w.sick)
		w.publish()
		w.expect("its end is news", "pair Normal GPURecovered 0")
	})
}

// TestAPodThatComesAfterTheNewsIsTold has a pod chosen on the graph before a link went
// down, and bound after its node was looked at.
func TestAPodThatComesAfterTheNewsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t)
		defer w.lead()()
		pod := w.run("pair", "0,3")
		if err := w.store.Delete(pod); err != nil {
			t.Fatal(err)
		}
		w.down[[2]int{0, 3}] = true
		w.publish()
		w.expect("before the pod is there")
		w.put(pod)
		time.Sleep(recheck + time.Second)
		w.expect("at the next look", "pair Warning LinkDegraded 0 3")
		time.Sleep(2 * newsTime)
		w.expect("later")
		if n := len(w.ctrl.hardware.news); n != 0 {
			t.Errorf("the news of %d nodes are kept", n)
		}
	})
}

func TestAnUnmetDemandIsNamed(t *testing.T) {
	w := newWard(t)
	pod := w.run("pair", "0,3", nodestate.MinLinkKey, "NVLINK")
	w.down[[2]int{0, 3}] = true
	w.publish()
	got, _ := troubles(holdingOf(pod, nil), w.state.Node(testNode), w.last.Status.GPUHealth)
	if len(got) != 1 || got[0].reason != reasonLinkDegraded || !strings.HasSuffix(got[0].note, "not met any more: link class (node n1, pod ns/pair)") {
		t.Errorf("troubles %+v, want one that says that the pod's own min-link is not met", got)
	}
}

func TestTheNameOfAnEventFits(t *testing.T) {
	w := newWard(t)
	pod := w.run(strings.Repeat("p", 253), "0,3")
	e := w.ctrl.hardware.eventOf(holdingOf(pod, nil), w.last, v1.EventTypeWarning, &trouble{reason: reasonGPULost, note: strings.Repeat("n", 5000)})
	if len(e.Name) != maxEventName || len(e.Note) != maxEventNote {
		t.Errorf("a name of %d and a note of %d bytes", len(e.Name), len(e.Note))
	}
}
