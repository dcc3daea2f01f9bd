// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// history is a node on which pods come and go, kubelet and agent are restarted,
// and the agent's watch is behind.
type history struct {
	t       *testing.T
	rnd     *rand.Rand
	api     *api
	model   *model
	graphs  graphs
	state   string
	strict  bool
	current atomic.Pointer[Steering]

	n       int
	created time.Time
	asking  *livePod   // being admitted
	live    []*livePod // bound, not ended
	ended   []*v1.Pod  // of those, not yet deleted
	counts  map[string]int
}

// livePod is what the test knows of a bound pod.
type livePod struct {
	pod     *v1.Pod
	shape   shape
	set     []string // chosen, nil for a foreign pod
	arrived bool     // kubelet has been given it
}

func newHistory(t *testing.T, seed uint64, strict bool) *history {
	t.Helper()
	h := &history{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), api: newAPI(), model: newModel(t, 8, seed), graphs: testGraphs(t),
		state: t.TempDir(), strict: strict, created: epoch, counts: map[string]int{},
	}
	h.model.ask = h.current.Load
	h.restartAgent()
	h.model.between = func() {
		if h.rnd.IntN(15) == 0 {
			h.restartAgent() // it has forgotten what it answered
		}
	}
	h.api.during = func() {
		if h.rnd.IntN(2) == 0 {
			h.counts["the watch delivered while it was waited for"]++
			h.api.sync()
		}
	}
	h.model.during = func() {
		h.counts["asked for all pods"]++
		if l := h.holder(); l != nil && h.rnd.IntN(2) == 0 {
			h.end(slices.Index(h.live, l), "ended while kubelet was asked for all pods")
		}
	}
	return h
}

func (h *history) restartAgent() {
	s, err := New(Config{Node: testNode, Strict: h.strict, StateDir: h.state, CheckpointPath: h.model.path}, h.api, h.model, h.graphs, clock.RealClock{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.current.Store(s)
}

var shapes = []shape{
	{apps: []int{1}},
	{apps: []int{1}},
	{apps: []int{2}},
	{apps: []int{2}},
	{apps: []int{4}},
	{apps: []int{1, 2}},
	{apps: []int{2, 2}},
	{plain: []int{2}, apps: []int{2}},
	{plain: []int{1}, apps: []int{2}},
	{plain: []int{4}, apps: []int{2}},
	{plain: []int{1, 2}, apps: []int{2, 1}},
	{sidecars: []int{1}, apps: []int{2}},
	{sidecars: []int{1}, plain: []int{2}, apps: []int{1, 1}},
	{plain: []int{3}, apps: []int{2, 2}},
}

// bind is a scheduler: it gives free GPUs to a new pod, or binds one by count.
func (h *history) bind() *livePod {
	s := shapes[h.rnd.IntN(len(shapes))]
	used, count := question.Set{}, 0
	for _, p := range h.live {
		used.Add(p.set)
		count += p.shape.size()
		if _, held := h.model.of(p.pod.UID); len(held) > 0 {
			used = used.With(held)
		}
	}
	free := h.model.healthy.Without(used).Sorted()
	h.n++
	h.created = h.created.Add(time.Duration(h.rnd.IntN(2)) * time.Second)
	name, uid := fmt.Sprintf("p%d", h.n%40), types.UID(fmt.Sprintf("uid-%d", h.n)) // names come back
	if h.api.named(name) {
		return nil
	}
	l := &livePod{shape: s}
	switch {
	case count+s.size() > len(h.model.healthy):
		return nil
	case h.rnd.IntN(4) == 0: // foreign
	case len(free) < s.size():
		return nil
	default:
		h.rnd.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		l.set = free[:s.size()]
	}
	l.pod = newPod(name, uid, h.created, s, l.set)
	if l.set == nil && h.rnd.IntN(3) == 0 {
		l.pod.Annotations = map[string]string{"nvtopo.dev/allocation": `{"version":1,"node":"other","podUID":"x"}`}
	}
	h.api.set(l.pod, func(*v1.Pod) {})
	h.live = append(h.live, l)
	return l
}

// end ends a pod: kubelet first, then the API.
func (h *history) end(i int, why string) {
	l := h.live[i]
	h.live = slices.Delete(h.live, i, i+1)
	h.model.end(l.pod)
	h.counts[why]++
	if h.rnd.IntN(2) == 0 {
		h.api.set(l.pod, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed })
	}
	h.ended = append(h.ended, l.pod)
}

// admit gives kubelet a pod and looks at what it got.
func (h *history) admit(l *livePod) {
	l.arrived = true
	h.asking = l
	before := h.free(l)
	_, had := h.model.of(l.pod.UID)
	whole := l.set != nil && len(had) == 0 && before.HasAll(l.set)
	crash := func(string) bool { return h.rnd.IntN(60) == 0 }
	err := h.model.admit(l.pod, crash)
	h.model.check()
	switch {
	case errors.Is(err, errCrash):
		h.counts["kubelet died in an admission"]++
		h.restartKubelet()
		return
	case err != nil:
		if whole {
			h.t.Errorf("pod %s was refused although its set %v was free: %v", l.pod.UID, l.set, err)
		}
		h.end(slices.Index(h.live, l), "rejected by the device manager")
		return
	}
	byContainer, all := h.model.of(l.pod.UID)
	if len(all) != l.shape.size() {
		h.t.Errorf("pod %s holds %v, want %d", l.pod.UID, byContainer, l.shape.size())
	}
	switch {
	case l.set == nil:
		h.counts["foreign"]++
	case len(had) > 0:
		h.counts["admitted again"]++
		if !all.HasAll(had.Sorted()) {
			h.t.Errorf("pod %s held %v, and after kubelet's restart %v", l.pod.UID, had.Sorted(), all.Sorted())
		}
	case !whole:
		h.counts["a chosen device was held"]++
		if h.strict && !slices.Equal(all.Sorted(), question.SetOf(l.set).Sorted()) {
			h.t.Errorf("pod %s (%+v) holds %v in strict mode, chosen were %v", l.pod.UID, l.shape, byContainer, l.set)
		}
	default:
		h.counts["as chosen"]++
		if want := question.SetOf(l.set); !slices.Equal(all.Sorted(), want.Sorted()) {
			h.t.Errorf("pod %s (%+v) holds %v, want %v", l.pod.UID, l.shape, byContainer, want.Sorted())
		}
		if len(l.shape.plain) == 0 {
			h.exact(l, byContainer)
		}
	}
	if h.rnd.IntN(12) == 0 { // the CPU manager, or a predicate
		h.end(slices.Index(h.live, l), "rejected after allocation")
		return
	}
	if h.rnd.IntN(2) == 0 {
		h.api.set(l.pod, func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: p.Spec.Containers[0].Name}} })
	}
}

// free is what kubelet would offer and no pod but l has: it may have forgotten that.
func (h *history) free(l *livePod) question.Set {
	free := h.model.free()
	for _, o := range h.live {
		if _, held := h.model.of(o.pod.UID); o != l {
			free = free.Without(held)
		}
	}
	return free
}

// holder is another pod than the one being admitted that has devices; nil if there is none.
func (h *history) holder() *livePod {
	for _, l := range h.live {
		if _, held := h.model.of(l.pod.UID); l != h.asking && len(held) > 0 {
			return l
		}
	}
	return nil
}

// exact compares container by container; init containers make that random.
func (h *history) exact(l *livePod, byContainer map[string][]string) {
	v := podfinder.PodOf(l.pod, testNode, func(reason string) { h.t.Errorf("ignored: %s", reason) })
	for i := range v.Containers {
		if c := &v.Containers[i]; !slices.Equal(c.Want[gpu], byContainer[c.Name]) {
			h.t.Errorf("pod %s container %s holds %v, want %v", l.pod.UID, c.Name, byContainer[c.Name], c.Want[gpu])
		}
	}
}

// restartKubelet gives it all bound pods anew, oldest first.
func (h *history) restartKubelet() {
	h.model.restart()
	h.counts["kubelet restarted"]++
	if h.rnd.IntN(2) == 0 {
		h.restartAgent() // as where the whole node was
	}
	again := slices.Clone(h.live)
	slices.SortStableFunc(again, func(a, b *livePod) int { return a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time) })
	for _, l := range again {
		if slices.Contains(h.live, l) && (l.arrived || h.rnd.IntN(2) == 0) {
			h.admit(l)
		}
	}
	h.model.ready()
}

func (h *history) step() {
	switch h.rnd.IntN(20) {
	case 0:
		h.restartAgent()
	case 1:
		if h.rnd.IntN(4) == 0 {
			h.restartKubelet()
		}
	case 2:
		h.model.mu.Lock()
		h.model.busy = h.rnd.IntN(4)
		h.model.mu.Unlock()
	case 3, 4, 5, 6:
		if len(h.live) > 0 {
			if i := h.rnd.IntN(len(h.live)); h.live[i].arrived {
				h.end(i, "ended")
			}
		}
	case 7: // deleted before kubelet has seen it, but kubelet may still admit it
		if waiting := h.waiting(); len(waiting) > 0 {
			h.api.set(waiting[0].pod, func(p *v1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(h.created)) })
		}
	case 8, 9, 10, 11:
		if waiting := h.waiting(); len(waiting) > 0 {
			h.admit(waiting[h.rnd.IntN(len(waiting))]) // in any order
		}
	default:
		h.bind()
	}
	if n := len(h.ended); n > 0 && h.rnd.IntN(3) > 0 {
		i := h.rnd.IntN(n)
		h.api.set(h.ended[i], nil)
		h.ended = slices.Delete(h.ended, i, i+1)
	}
	if h.rnd.IntN(3) > 0 {
		h.api.sync()
	}
}

func (h *history) waiting() []*livePod {
	var out []*livePod
	for _, l := range h.live {
		if !l.arrived {
			out = append(out, l)
		}
	}
	return out
}

// TestHistory: whatever happens on the node, no device is with two live pods, and
// a pod whose chosen devices are free when kubelet admits it gets exactly them; in
// strict mode no other pod with a choice is admitted.
func TestHistory(t *testing.T) {
	t.Parallel()
	const seeds = 6
	var surveys, played atomic.Int64
	t.Cleanup(func() { // all seeds have ended
		// Not every seed comes to that, so a run of some of them (-run) cannot be judged.
		if played.Load() == seeds && surveys.Load() == 0 {
			t.Error("kubelet was never asked for all pods")
		}
	})
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			played.Add(1)
			synctest.Test(t, func(t *testing.T) { surveys.Add(int64(play(t, seed))) })
		})
	}
}

// play is a history of some length, beside what else the agent does. It returns how often
// kubelet was asked for all pods. Its time is a bubble's: a stalled machine has answers come
// too late, and those that are given then are no part of it.
func play(t *testing.T, seed uint64) (surveys int) {
	t.Helper()
	const turn = 3 * time.Millisecond
	h := newHistory(t, seed, seed%2 == 1)
	h.model.mistaken = seed%3 == 2
	healthy := map[string]bool{}
	for id := range h.model.healthy {
		healthy[id] = true
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, f := range []func(s *Steering){
		func(s *Steering) { s.Devices(gpu, healthy) },
		func(s *Steering) { s.clean(t.Context()) },
		func(s *Steering) { s.save(testLogger) },
		func(s *Steering) { _ = s.Busy(); _ = s.PreStart(ctx, gpu, []string{"GPU-1"}) },
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				f(h.current.Load())
				time.Sleep(turn)
			}
		})
	}
	for range 1500 {
		time.Sleep(turn) // so that all the above begin at the same moment
		h.step()
		if t.Failed() {
			break
		}
	}
	t.Logf("%d pods, %d live lists, %d gets: %v", h.n, h.api.lists, h.model.gets, h.counts)
	if h.counts["as chosen"] < 50 {
		t.Errorf("only %d pods were checked: %v", h.counts["as chosen"], h.counts)
	}
	return h.counts["asked for all pods"]
}
