// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfindertest"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// Short names of what podfindertest has.
const gpu = podfindertest.GPU

var (
	epoch     = podfindertest.Epoch
	asks      = podfindertest.Asks
	gpus      = podfindertest.GPUs
	testPod   = podfindertest.Pod
	dgxTables = podfindertest.Tables
)

const testNode = "node-a"

// api is the API server and the agent's watch of it, which may be behind.
type api struct {
	mu      sync.Mutex
	now     map[types.UID]*v1.Pod
	watched map[types.UID]*v1.Pod
	held    map[types.UID]bool // the watch does not deliver them
	changed chan struct{}      // closed at the next sync; nil: nobody waits for it
	version int
	lists   int
	takes   time.Duration // what a list takes
	during  func()        // what happens while the watch is waited for; nil: nothing
}

func newAPI() *api { return &api{now: map[types.UID]*v1.Pod{}, watched: map[types.UID]*v1.Pod{}} }

// set writes a pod; nil change deletes it. The watch sees it at the next sync.
func (a *api) set(pod *v1.Pod, change func(*v1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if change == nil {
		delete(a.now, pod.UID)
		return
	}
	if old := a.now[pod.UID]; old != nil {
		pod = old
	}
	pod = pod.DeepCopy()
	change(pod)
	a.version++
	pod.ResourceVersion = strconv.Itoa(a.version)
	a.now[pod.UID] = pod
}

func (a *api) sync() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = maps.Clone(a.now)
	maps.DeleteFunc(a.watched, func(uid types.UID, _ *v1.Pod) bool { return a.held[uid] })
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

func (a *api) Changed() <-chan struct{} {
	a.mu.Lock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	changed := a.changed
	a.mu.Unlock()
	if a.during != nil {
		a.during()
	}
	return changed
}

func (a *api) Pods() []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.watched))
}

func (a *api) Live(context.Context) ([]*v1.Pod, error) {
	time.Sleep(a.takes)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	return slices.Collect(maps.Values(a.now)), nil
}

func (a *api) named(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.now {
		if p.Name == name {
			return true
		}
	}
	return false
}

// model is kubelet's device manager for one resource, after the source of 1.35:
// what it takes by itself, what it asks, and what it writes down when.
type model struct {
	tb   testing.TB
	path string // of the checkpoint
	rnd  *rand.Rand
	ask  func() *Steering
	// mistaken has it clean up while an allocation is under way, which forgets that
	// the devices are taken (kubernetes/kubernetes#137534).
	mistaken bool

	between func()                            // before an Allocate; nil: nothing
	plugin  func()                            // while the plugin is at an Allocate; nil: nothing
	measure func(rpc string, start time.Time) // nil: not at all

	admission sync.Mutex // one pod at a time

	mu        sync.Mutex
	healthy   question.Set
	known     map[string]*v1.Pod                // namespace/name -> pod
	inactive  map[types.UID]bool                // rejected or ended
	devices   map[types.UID]map[string][]string // pod -> container -> ids
	allocated question.Set
	starting  bool // until all pods are back after a restart, nothing is cleaned up
	busy      int  // answers of ErrBusy to give
	gets      int
	lists     int    // of all active pods
	taking    int    // containers for which it has taken devices that it has not recorded
	during    func() // what happens on the node while it is asked for all pods; nil: nothing
}

func newModel(tb testing.TB, devices int, seed uint64) *model {
	tb.Helper()
	m := &model{
		tb: tb, path: filepath.Join(tb.TempDir(), kubelet.CheckpointName), rnd: rand.New(rand.NewPCG(seed, 7)),
		healthy: question.Set{}, known: map[string]*v1.Pod{}, inactive: map[types.UID]bool{},
		devices: map[types.UID]map[string][]string{}, allocated: question.Set{},
	}
	m.provide(devices)
	m.write()
	return m
}

// provide has the node have so many devices; nobody else uses the model yet.
func (m *model) provide(devices int) {
	m.healthy = question.Set{}
	for i := range devices {
		m.healthy[fmt.Sprintf("GPU-%d", i)] = struct{}{}
	}
}

// Get is PodResources Get: by name, active pods only, no plain init containers.
func (m *model) Get(_ context.Context, namespace, name string) (kubelet.Devices, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	if m.busy > 0 {
		m.busy--
		return nil, kubelet.ErrBusy
	}
	pod := m.known[namespace+"/"+name]
	if pod == nil || m.inactive[pod.UID] {
		return nil, fmt.Errorf("pod %s: %w", name, kubelet.ErrUnknownPod)
	}
	out := kubelet.Devices{}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil {
			out[c.Name] = map[string][]string{gpu: m.devices[pod.UID][c.Name]}
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		out[c.Name] = map[string][]string{gpu: m.devices[pod.UID][c.Name]}
	}
	return out, nil
}

// ActivePods is PodResources List, as far as it is read: it cleans up before it
// answers, which no pod may suffer from for which it is giving out devices.
func (m *model) ActivePods(context.Context) (map[types.NamespacedName]bool, error) {
	if m.during != nil {
		m.during()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists++
	if m.busy > 0 {
		m.busy--
		return nil, kubelet.ErrBusy
	}
	if m.taking > 0 {
		m.tb.Errorf("kubelet is asked for all pods while it holds devices in hand for %d containers", m.taking)
	}
	m.cleanUp()
	out := map[types.NamespacedName]bool{}
	for _, pod := range m.known {
		if !m.inactive[pod.UID] {
			out[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = true
		}
	}
	return out, nil
}

// asked is how many requests kubelet was sent.
func (m *model) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gets + m.lists
}

// write writes the checkpoint; it needs mu, or that nobody else is there.
func (m *model) write() {
	var entries []checkpoint.PodDevicesEntry
	for uid, containers := range m.devices {
		for name, ids := range containers {
			entries = append(entries, checkpoint.PodDevicesEntry{
				PodUID: string(uid), ContainerName: name, ResourceName: gpu, DeviceIDs: map[int64][]string{-1: ids},
			})
		}
	}
	data, err := checkpoint.New(entries, map[string][]string{gpu: m.healthy.Sorted()}).MarshalCheckpoint()
	if err == nil {
		err = os.WriteFile(m.path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(m.path+".new", m.path)
	}
	if err != nil {
		m.tb.Errorf("writing the checkpoint: %v", err)
	}
}

// cleanUp is UpdateAllocatedDevices; it needs mu.
func (m *model) cleanUp() {
	if m.starting {
		return
	}
	active := map[types.UID]bool{}
	for _, p := range m.known {
		active[p.UID] = !m.inactive[p.UID]
	}
	removed := false
	for uid := range m.devices {
		if !active[uid] {
			delete(m.devices, uid)
			removed = true
		}
	}
	if removed {
		m.recount()
	}
}

func (m *model) recount() {
	m.allocated = question.Set{}
	for _, containers := range m.devices {
		for _, ids := range containers {
			m.allocated.Add(ids)
		}
	}
}

var errCrash = errors.New("kubelet died")

// admit is the admission of one pod; crash, if set, may end it at a named point.
func (m *model) admit(pod *v1.Pod, crash func(point string) bool) error {
	m.admission.Lock()
	defer m.admission.Unlock()
	return m.work(pod, crash)
}

// work gives a pod its devices. Beside admission, the worker of a pod does so that was
// admitted before and has lost its record.
func (m *model) work(pod *v1.Pod, crash func(point string) bool) error {
	m.mu.Lock()
	m.known[pod.Namespace+"/"+pod.Name] = pod
	m.mu.Unlock()
	reuse := question.Set{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if err := m.allocate(pod, &c, reuse, crash); err != nil {
			return err
		}
		m.mu.Lock()
		ids := m.devices[pod.UID][c.Name]
		m.mu.Unlock()
		plain := slices.ContainsFunc(pod.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name && i.RestartPolicy == nil })
		for _, id := range ids {
			if plain {
				reuse[id] = struct{}{}
			} else {
				delete(reuse, id)
			}
		}
	}
	return nil
}

// allocate is devicesToAllocate and what follows, for policy none.
func (m *model) allocate(pod *v1.Pod, c *v1.Container, reuse question.Set, crash func(string) bool) error {
	limit := c.Resources.Limits[gpu]
	need := int(limit.Value())
	if need == 0 {
		return nil
	}
	m.mu.Lock()
	m.cleanUp()
	if len(m.devices[pod.UID][c.Name]) > 0 {
		m.mu.Unlock()
		return nil
	}
	taken := question.Set{}
	take := func(from question.Set) bool {
		for id := range from.Without(taken) {
			if len(taken) == need {
				break
			}
			taken[id], m.allocated[id] = struct{}{}, struct{}{}
		}
		return len(taken) == need
	}
	if !take(reuse) {
		available := m.healthy.Without(m.allocated)
		if len(available) < need-len(taken) {
			m.mu.Unlock()
			return errors.New("requested number of devices unavailable")
		}
		must := taken.Sorted()
		offered := available.With(taken)
		if len(must) > 0 {
			m.taking++
			defer m.hasTaken()
		}
		m.mu.Unlock()
		start := time.Now()
		ids, err := m.ask().Preferred(m.tb.Context(), interposer.Question{
			Resource: gpu, Available: offered.Sorted(), MustInclude: must, Size: need,
		}, nil)
		m.took("preferred", start)
		m.mu.Lock()
		if err != nil {
			m.recount()
			m.mu.Unlock()
			return err
		}
		if q := question.New(gpu, offered.Sorted(), must, need); !q.Valid(ids) || !slices.IsSorted(ids) {
			m.tb.Errorf("answer %v to %d out of %v with %v", ids, need, offered.Sorted(), must)
		}
		if !take(question.SetOf(ids).Common(available)) && !take(available) {
			m.tb.Errorf("kubelet cannot complete the answer %v", ids)
		}
	}
	ids := taken.Sorted()
	m.taking++
	m.mu.Unlock()
	defer m.hasTaken()
	if crash != nil && crash("preferred") {
		return errCrash
	}
	if m.between != nil {
		m.between()
	}
	start := time.Now()
	err := m.ask().Allocate(m.tb.Context(), gpu, ids)
	m.took("allocate", start)
	if err != nil {
		m.mu.Lock()
		m.recount()
		m.mu.Unlock()
		return err
	}
	if m.plugin != nil {
		m.plugin()
	}
	m.ask().Allocated(gpu, ids)
	if m.mistaken && m.rnd.IntN(4) == 0 {
		m.mu.Lock()
		m.recount()
		m.mu.Unlock()
	}
	if crash != nil && crash("allocated") {
		return errCrash
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.devices[pod.UID] == nil {
		m.devices[pod.UID] = map[string][]string{}
	}
	m.devices[pod.UID][c.Name] = ids
	m.write()
	return nil
}

func (m *model) hasTaken() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taking--
}

func (m *model) took(rpc string, start time.Time) {
	if m.measure != nil {
		m.measure(rpc, start)
	}
}

// end is what kubelet does with a pod it does not admit, and when one has ended.
func (m *model) end(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inactive[pod.UID] = true
}

// restart is kubelet's: what it knows is the checkpoint until pods arrive again.
func (m *model) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known, m.starting = map[string]*v1.Pod{}, true
	records, err := kubelet.ReadCheckpoint(m.path)
	if err != nil {
		m.tb.Errorf("kubelet cannot read its checkpoint: %v", err)
	}
	m.devices = map[types.UID]map[string][]string{}
	for _, r := range records {
		if m.devices[r.PodUID] == nil {
			m.devices[r.PodUID] = map[string][]string{}
		}
		m.devices[r.PodUID][r.Container] = r.IDs
	}
	m.recount()
}

// ready is when all pods are back.
func (m *model) ready() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starting = false
}

// of returns what a pod's containers hold, and all of it.
func (m *model) of(uid types.UID) (byContainer map[string][]string, all question.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all = question.Set{}
	for _, ids := range m.devices[uid] {
		all.Add(ids)
	}
	return maps.Clone(m.devices[uid]), all
}

// free is what kubelet would offer now.
func (m *model) free() question.Set {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cleanUp()
	return m.healthy.Without(m.allocated)
}

// check fails if a device is with two active pods.
func (m *model) check() {
	m.mu.Lock()
	defer m.mu.Unlock()
	holder := map[string]types.UID{}
	for uid, containers := range m.devices {
		if m.inactive[uid] {
			continue
		}
		for _, ids := range containers {
			for _, id := range ids {
				if other, ok := holder[id]; ok && other != uid {
					m.tb.Errorf("device %s is with pods %s and %s", id, other, uid)
				}
				holder[id] = uid
			}
		}
	}
}

// graphs are the tables of one machine with the model's device names.
type graphs struct{ tables *nvtopo.Tables }

func (g graphs) Tables(string) *nvtopo.Tables { return g.tables }

func testGraphs(tb testing.TB) graphs {
	tb.Helper()
	return graphs{dgxTables(tb)}
}

// shape is how many GPUs the containers of a pod ask for: plain init containers,
// sidecars, containers.
type shape struct{ plain, sidecars, apps []int }

// newPod builds a pod of a shape, with an annotation that gives it set, if there is
// one: sidecars and containers get parts of it, init containers what the next
// containers get.
func newPod(name string, uid types.UID, created time.Time, s shape, set []string) *v1.Pod {
	pod := testobj.Pod(name).Namespace("ns").UID(string(uid)).Created(created).Node(testNode).Containers().Obj()
	alloc := &allocation.Allocation{Version: allocation.Version, Node: testNode, PodUID: uid, Assumed: created}
	give := func(name string, init bool, from []string, n int) {
		if set != nil && n > 0 {
			alloc.Containers = append(alloc.Containers, allocation.Container{Name: name, Resource: gpu, Init: init, GPUs: slices.Clone(from[:n])})
		}
	}
	// Sidecars first, and from the end of the set, so that init containers can
	// have the front, which is the containers'.
	left := set
	for i, n := range s.sidecars {
		c := testobj.Sidecar(fmt.Sprintf("side%d", i), n)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		if set != nil {
			give(c.Name, false, left[len(left)-n:], n)
			left = left[:len(left)-n]
		}
	}
	for i, n := range s.plain {
		c := testobj.Container(fmt.Sprintf("init%d", i), n)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		give(c.Name, true, left, n)
	}
	for i, n := range s.apps {
		c := testobj.Container(fmt.Sprintf("app%d", i), n)
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		if set != nil {
			give(c.Name, false, left, n)
			left = left[n:]
		}
	}
	if set != nil {
		text, err := alloc.Encode()
		if err != nil {
			panic(err)
		}
		pod.Annotations[allocation.Key] = text
	}
	return pod
}

// size is how many GPUs a pod of the shape needs.
func (s shape) size() int {
	sum := func(ns []int) (n int) {
		for _, x := range ns {
			n += x
		}
		return n
	}
	side := sum(s.sidecars)
	most := sum(s.apps)
	for _, n := range s.plain {
		most = max(most, n)
	}
	return side + most
}
