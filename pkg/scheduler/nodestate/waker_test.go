// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// waitingCluster is a cluster with waiting pods, a scheduler that tries exactly those that are woken or
// new, and a scheduler cache that gets events later than the State.
type waitingCluster struct {
	t     *testing.T
	rng   *rand.Rand
	state *State
	clock *tickClock
	nodes map[string]*v1.Node
	store map[types.UID]*v1.Pod // the informer's

	cache    map[types.UID]*v1.Pod // the scheduler's, with bound pods
	cordons  map[string]bool       // as in the scheduler's cache
	later    []heard               // events it has still to get
	prompt   bool                  // it gets events at once
	doubtful int                   // one in this number of bindings fails without an answer; 0: none
	vanish   int                   // one in this number of pods is gone before its refusal is recorded; 0: none
	hold     int                   // one in this number of choices waits for another plugin before it is bound; 0: none
	held     map[types.UID]func()  // those that do, and how to bind them
	retries  bool                  // pods are tried although no node would take them
	queue    []types.UID           // pods to be tried
	serial   int
	attempts int
	order    []string // pods in the order in which they were bound
}

// heard is an event on its way to the scheduler's cache.
type heard struct {
	since time.Time
	tell  func()
}

// lag is the greatest delay: less than the waker's CacheDelay.
const lag = waking.CacheDelay * 3 / 4

func newWaitingCluster(t *testing.T, seed uint64, machines ...string) *waitingCluster {
	t.Helper()
	clk := &tickClock{now: time.Unix(1_700_000_000, 0)}
	c := &waitingCluster{
		t: t, rng: rand.New(rand.NewPCG(seed, 5)), state: New(testConfig(), clk), clock: clk,
		nodes: map[string]*v1.Node{}, store: map[types.UID]*v1.Pod{}, cache: map[types.UID]*v1.Pod{}, cordons: map[string]bool{},
		held: map[types.UID]func(){},
	}
	c.state.listers.pods, c.state.listers.nodes = fixedStore(c.store), c
	c.state.Lists.in.Store(true)
	for i, kind := range machines {
		name := fmt.Sprintf("node-%d", i)
		c.nodes[name] = addNode(t, c.state, name, kind)
	}
	return c
}

func (c *waitingCluster) node(name string) *v1.Node { return c.nodes[name] }

func (c *waitingCluster) podsOn(node string) (out []*v1.Pod) {
	for _, uid := range slices.Sorted(maps.Keys(c.store)) {
		if c.store[uid].Spec.NodeName == node {
			out = append(out, c.store[uid])
		}
	}
	return out
}

// hear delivers an event to the scheduler's cache, a little later.
func (c *waitingCluster) hear(f func()) {
	if c.prompt {
		f()
		return
	}
	c.later = append(c.later, heard{c.clock.now, f})
}

// deliver delivers old events, and perhaps some more.
func (c *waitingCluster) deliver() {
	for len(c.later) > 0 && (c.clock.now.Sub(c.later[0].since) >= lag || c.rng.IntN(3) == 0) {
		c.later[0].tell()
		c.later = c.later[1:]
	}
}

func (c *waitingCluster) add(gpus int, priority int32, notes map[string]string) *v1.Pod {
	c.serial++
	pod := schedtest.Pod(fmt.Sprintf("pod-%03d", c.serial)).GPUs(gpus).Annotations(notes).Priority(priority).
		Created(c.clock.now.Add(time.Duration(c.serial) * time.Second)).Obj()
	c.store[pod.UID] = pod
	c.queue = append(c.queue, pod.UID)
	return pod
}

func (c *waitingCluster) finish(uid types.UID) {
	pod := c.store[uid]
	c.remove(uid)
	c.state.Changes.touchNode(pod.Spec.NodeName)
	c.hear(func() { delete(c.cache, uid) })
}

// remove delivers the end of a pod to the informer.
func (c *waitingCluster) remove(uid types.UID) {
	delete(c.store, uid)
	c.state.podDeleted(uid)
}

// oneOf is true once in n times; 0: never.
func (c *waitingCluster) oneOf(n int) bool { return n == 1 || n > 1 && c.rng.IntN(n) == 0 }

func (c *waitingCluster) cordon(name string, on bool) {
	node := c.nodes[name].DeepCopy()
	node.Spec.Unschedulable = on
	c.nodes[name] = node
	c.state.Changes.touchNode(name)
	c.hear(func() { c.cordons[name] = on })
}

func (c *waitingCluster) lease(name string, lives bool) {
	if !lives {
		c.state.PodDevices.leases.Drop(nodelease.ExporterPrefix + name)
		return
	}
	if c.state.PodDevices.leases.Set(lease(nodelease.ExporterPrefix+name, c.clock.now, 365*24*time.Hour), c.clock.now) {
		c.state.Changes.leaseBack(nodelease.ExporterPrefix + name)
	}
}

// health publishes a graph in which one GPU is broken, or none.
func (c *waitingCluster) health(name string, broken int) {
	old := c.state.Nodes.Node(name)
	obj := topologyOf(c.t, name, "dgx1-v100")
	version, err := strconv.Atoi(old.ResourceVersion)
	if err != nil {
		c.t.Fatal(err)
	}
	obj.ResourceVersion = strconv.Itoa(version + 1)
	if broken >= 0 {
		obj.Status.GPUHealth = append(obj.Status.GPUHealth, v1alpha1.GPUHealth{ID: obj.Spec.GPUs[broken].ID})
	}
	if _, err := c.state.Graphs.Apply(obj); err != nil {
		c.t.Fatal(err)
	}
}

// try runs one scheduling cycle for a pod.
func (c *waitingCluster) try(uid types.UID) {
	pod := c.store[uid]
	if pod == nil || pod.Spec.NodeName != "" || c.held[uid] != nil {
		return
	}
	c.attempts++
	snapshot := schedcache.NewSnapshot(slices.Collect(maps.Values(c.cache)), slices.Collect(maps.Values(c.nodes))).NodeInfos()
	c.state.Allocations.Sweep(snapshot)
	d := demandOf(c.t, pod)
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		info, err := snapshot.Get(name)
		if err != nil {
			c.t.Fatal(err)
		}
		if c.cordons[name] || c.state.Nodes.Judge(d, info, snapshot).Reason != placement.Fits {
			continue
		}
		a, reason := c.state.Allocations.Assume(d, pod, info, snapshot)
		if reason != placement.Fits {
			continue
		}
		if c.oneOf(c.hold) {
			c.held[uid] = func() { c.bind(pod, name, a) }
			return
		}
		c.state.Binder.Attempt(uid, name).BindingBegan()
		if c.oneOf(c.doubtful) { // the outcome is unknown to the scheduler; it was not bound
			c.state.Allocations.Forget(uid, name)
			c.queue = append(c.queue, uid) // the scheduling queue retries it
			return
		}
		c.bind(pod, name, a)
		return
	}
	if c.oneOf(c.vanish) {
		c.remove(uid)
	}
	c.state.Waiting.Add(&waking.RefusedPod{Pod: pod, Demand: *d})
}

func (c *waitingCluster) bind(pod *v1.Pod, name string, a *allocation.Allocation) {
	c.state.Binder.Attempt(pod.UID, name).BindingBegan()
	bound := pod.DeepCopy()
	bound.Spec.NodeName, bound.ResourceVersion = name, "1"
	text, err := a.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	bound.Annotations = map[string]string{allocation.Key: text}
	c.store[pod.UID], c.cache[pod.UID] = bound, bound
	c.order = append(c.order, pod.Name)
	c.state.handlers.podEvent(nil, bound)
	c.state.Changes.touchNode(name)
}

// letGo ends the wait of one of the pods that have an allocation: it is bound, refused or deleted.
func (c *waitingCluster) letGo() {
	held := slices.Sorted(maps.Keys(c.held))
	if len(held) == 0 {
		return
	}
	uid := held[c.rng.IntN(len(held))]
	bind := c.held[uid]
	delete(c.held, uid)
	switch c.rng.IntN(3) {
	case 0:
		bind()
	case 1:
		for name := range c.nodes {
			c.state.Allocations.Forget(uid, name)
		}
		c.queue = append(c.queue, uid) // the scheduling queue retries it
	default:
		c.remove(uid)
	}
}

// decide settles the unknown outcomes that are old enough: no such pod was bound.
func (c *waitingCluster) decide() {
	for _, cl := range c.state.doubts() {
		c.state.doubtReader.decide(cl, c.store[cl.UID])
	}
}

// wakesNow runs one round of the waker.
func (c *waitingCluster) wakesNow() []*v1.Pod {
	woken, _ := c.state.Waiting.waker.Round()
	if c.retries {
		woken = append(woken, c.state.Waiting.waker.RetrySome()...)
	}
	return woken
}

// pass runs the events of a moment.
func (c *waitingCluster) pass(d time.Duration) (busy bool) {
	c.clock.now = c.clock.now.Add(d)
	c.decide()
	c.deliver()
	for range len(c.queue) {
		uid := c.queue[0]
		c.queue = c.queue[1:]
		c.try(uid)
		busy = true
		c.deliver()
	}
	woken := c.wakesNow()
	for _, pod := range woken {
		if gated, _ := c.state.Waiting.Gated(pod); gated {
			c.t.Fatalf("pod %s is woken and kept waiting", pod.Name)
		}
		c.queue = append(c.queue, pod.UID)
	}
	return busy || len(woken) > 0 || len(c.later) > 0
}

// rest runs everything that follows without further input.
func (c *waitingCluster) rest() {
	passes := 0
	for quiet := 0; quiet < 100; quiet++ {
		if passes++; passes > 10000 {
			c.t.Fatal("pods are woken again and again")
		}
		if c.pass(100 * time.Millisecond) {
			quiet = 0
		}
	}
}

// forgotten returns the name of a waiting pod that fits a node in the present state, or "".
func (c *waitingCluster) forgotten() string {
	snapshot := schedcache.NewSnapshot(slices.Collect(maps.Values(c.cache)), slices.Collect(maps.Values(c.nodes))).NodeInfos()
	c.state.Allocations.Sweep(snapshot)
	for _, uid := range slices.Sorted(maps.Keys(c.store)) {
		pod := c.store[uid]
		if pod.Spec.NodeName != "" || c.held[uid] != nil {
			continue
		}
		for name, node := range c.nodes {
			info, err := snapshot.Get(name)
			if err != nil {
				c.t.Fatal(err)
			}
			if !node.Spec.Unschedulable && c.state.Nodes.Judge(demandOf(c.t, pod), info, snapshot).Reason == placement.Fits {
				return pod.Name + " fits " + name
			}
		}
	}
	return ""
}

func (c *waitingCluster) bound() (out []types.UID) {
	for _, uid := range slices.Sorted(maps.Keys(c.store)) {
		if c.store[uid].Spec.NodeName != "" {
			out = append(out, uid)
		}
	}
	return out
}

// TestFittingPods: no fitting pod is forgotten.
func TestFittingPods(t *testing.T) {
	const seeds = 150
	attempts, bound := 0, 0
	for seed := range uint64(seeds) {
		c := newWaitingCluster(t, seed, "dgx1-v100", "dgx1-v100", "dgx1-v100")
		c.doubtful, c.vanish, c.hold = 12, 15, 12
		names := slices.Sorted(maps.Keys(c.nodes))
		for step := range 120 {
			name := names[c.rng.IntN(len(names))]
			switch c.rng.IntN(13) {
			case 0, 1, 2, 3:
				notes := map[string]string{}
				switch c.rng.IntN(4) {
				case 0:
					notes[podrequest.TopologyPolicyKey] = "single-numa-node"
				case 1:
					notes[podrequest.MinLinkKey] = "NVLINK"
				}
				c.add(1<<c.rng.IntN(4), int32(c.rng.IntN(3)), notes)
			case 4, 5, 6:
				if on := c.bound(); len(on) > 0 {
					c.finish(on[c.rng.IntN(len(on))])
				}
			case 7:
				c.cordon(name, !c.nodes[name].Spec.Unschedulable)
			case 8:
				c.lease(name, c.rng.IntN(3) > 0)
			case 9:
				c.health(name, c.rng.IntN(9)-1)
			case 10:
				c.letGo()
			default:
				c.pass(time.Duration(c.rng.IntN(3000)) * time.Millisecond)
			}
			if step%40 < 39 {
				continue
			}
			c.rest()
			if pod := c.forgotten(); pod != "" {
				t.Fatalf("seed %d, step %d: %s and nobody tries it", seed, step, pod)
			}
		}
		attempts, bound = attempts+c.attempts, bound+len(c.order)
	}
	t.Logf("%d attempts for %d bindings", attempts, bound)
	if bound < 10*seeds {
		t.Errorf("%d bindings over %d seeds test little", bound, seeds)
	}
}

// TestReleaseWakeUp: a release wakes the pods that can use it.
func TestReleaseWakeUp(t *testing.T) {
	c := newWaitingCluster(t, 1, "dgx1-v100")
	c.prompt = true
	for range 8 {
		c.add(1, 0, nil)
	}
	c.rest()
	running := c.bound()
	for range 500 {
		c.add(2, 5, nil) // of higher priority, and one GPU does not suffice for it
	}
	for range 500 {
		c.add(1, 0, nil)
	}
	first := c.add(1, 3, nil)
	c.rest()
	before := c.attempts
	c.finish(running[0])
	c.rest()
	if n := c.attempts - before; n > 12 {
		t.Errorf("one GPU came free and %d of 1001 waiting pods were tried, want a few", n)
	}
	if got := c.order[8:]; len(got) != 1 || got[0] != first.Name {
		t.Errorf("bound were %v, want %s", got, first.Name)
	}
}
