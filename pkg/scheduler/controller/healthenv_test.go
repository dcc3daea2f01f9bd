// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// healthEnv is a controller, a node whose hardware the test breaks, and its pods.
type healthEnv struct {
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
	broken atomic.Bool     // the API server takes no events
}

func newHealthEnv(t *testing.T) *healthEnv {
	t.Helper()
	state, _ := stateOf(t, "dgx1-v100")
	w := &healthEnv{
		t: t, state: state, store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), client: fake.NewClientset(),
		sick: map[int]v1alpha1.GPUHealth{}, mig: map[int]bool{}, down: map[[2]int]bool{},
	}
	w.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return w.broken.Load(), nil, errors.New("no server")
	})
	w.restart()
	w.publish()
	return w
}

// restart replaces the controller by that of a new process.
func (e *healthEnv) restart() {
	e.ctrl = New(viewOf(e.state), e.client, corelisters.NewPodLister(e.store), events.NewFakeRecorder(100))
	if e.last != nil {
		e.ctrl.Handler().OnAdd(e.last, true)
	}
}

// publish makes an object of the hardware's condition and delivers it to all handlers.
func (e *healthEnv) publish(records ...v1alpha1.Allocation) {
	e.t.Helper()
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		e.t.Fatal(err)
	}
	g, err := m.GraphFor(testNode)
	if err != nil {
		e.t.Fatal(err)
	}
	if e.graph == nil {
		e.graph = g
	}
	t := v1alpha1.FromGraph(testNode, gpu, g)
	t.UID, t.Spec.NodeUID = "topology", "node"
	t.ResourceVersion, t.Generation = "2", 1
	for at, h := range e.sick {
		h.ID = t.Status.GPUHealth[at].ID
		t.Status.GPUHealth[at] = h
	}
	for at := range e.mig {
		t.Spec.GPUs[at].MIG = true
	}
	n := len(t.Spec.GPUs) - e.less
	t.Spec.GPUs, t.Status.GPUHealth, t.Spec.LinkRows = t.Spec.GPUs[:n], t.Status.GPUHealth[:n], t.Spec.LinkRows[:max(0, n-1)]
	sys := nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: nvtopo.PCIeSYS}, nvtopo.PCIeSYS, 3, 0, false)
	t.Spec.LinkKinds = append(t.Spec.LinkKinds, v1alpha1.LinkKind{Name: "down", Class: "SYS", Bandwidth: *resource.NewQuantity(sys.Bandwidth*1000, resource.DecimalSI)})
	for i, row := range t.Spec.LinkRows {
		words := strings.Fields(row)[:n-1-i]
		for j := range words {
			if e.down[[2]int{i, i + 1 + j}] {
				words[j] = "down"
			}
		}
		t.Spec.LinkRows[i] = strings.Join(words, " ")
	}
	t.Spec.NICs = nil
	t.Status.Allocations = records
	old := e.last
	if old != nil {
		v, err := strconv.Atoi(old.ResourceVersion)
		if err != nil {
			e.t.Fatal(err)
		}
		t.ResourceVersion, t.Generation = strconv.Itoa(v+1), old.Generation
		if !cmp.Equal(old.Spec, t.Spec) {
			t.Generation++
		}
	}
	e.last = t
	if _, err := e.state.Graphs.Apply(t); err != nil {
		e.t.Fatal(err)
	}
	if old == nil {
		e.ctrl.Handler().OnAdd(t, false)
	} else {
		e.ctrl.Handler().OnUpdate(old, t)
	}
}

// run adds a running pod with these GPUs, whose annotations are from the present graph.
func (e *healthEnv) run(name string, gpus string, annotations ...string) *v1.Pod {
	e.t.Helper()
	a := allocated(e.graph, "m="+gpus)
	a.PodUID, a.Assumed = types.UID(name), time.Now().UTC()
	all, err := e.state.Nodes.Annotations(a, false)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		all[annotations[i]] = annotations[i+1]
	}
	p := testobj.Pod(name).Namespace("ns").ResourceVersion("1").Created(time.Now()).Node(testNode).Annotations(all).Obj()
	e.put(p)
	return p
}

func (e *healthEnv) put(p *v1.Pod) {
	e.t.Helper()
	if err := e.store.Update(p); err != nil {
		e.t.Fatal(err)
	}
}

// lead runs a term of the present controller.
func (e *healthEnv) lead() (stop func()) {
	ctx, cancel := context.WithCancel(e.t.Context())
	done := make(chan struct{})
	ctrl := e.ctrl
	go func() { defer close(done); ctrl.Run(ctx) }()
	return func() { cancel(); <-done }
}

// said returns the events since the last call: "pod type reason GPUs".
func (e *healthEnv) said() []string {
	e.t.Helper()
	time.Sleep(2 * sortedFor)
	synctest.Wait()
	list, err := e.client.EventsV1().Events("ns").List(e.t.Context(), metav1.ListOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	slices.SortStableFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var out []string
	for i := e.seenAt; i < len(list.Items); i++ {
		event := &list.Items[i]
		line := event.Regarding.Name + " " + event.Type + " " + event.Reason
		if !strings.Contains(event.Note, event.Regarding.Name) {
			e.t.Errorf("the note does not name its pod: %s", event.Note)
		}
		words := []string{line}
		for p := range e.graph.GPUs {
			if strings.Contains(event.Note, e.graph.GPUs[p].UUID) {
				words = append(words, strconv.Itoa(p))
			}
		}
		out = append(out, strings.Join(words, " "))
	}
	e.seenAt = len(list.Items)
	slices.Sort(out)
	return out
}

func (e *healthEnv) expect(when string, want ...string) {
	e.t.Helper()
	if diff := cmp.Diff(want, e.said()); diff != "" {
		e.t.Errorf("%s (-want,+got):\n%s", when, diff)
	}
}

// since returns a health that began now.
func since(h v1alpha1.GPUHealth) v1alpha1.GPUHealth {
	h.Since = new(metav1.Now())
	return h
}

func lostGPU() v1alpha1.GPUHealth { return since(v1alpha1.GPUHealth{Reason: "GPU is lost: fell off"}) }
func linkSick() v1alpha1.GPUHealth {
	return since(v1alpha1.GPUHealth{Healthy: true, Degraded: true, Reason: "NVLink error: Xid 74"})
}
