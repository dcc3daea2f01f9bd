// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

const (
	// waitingRack is the number of nodes in a rack, and besideMembers the number of whole nodes that a
	// gang needs in one: it never fits, however many pods end.
	waitingRack   = 3
	besideMembers = waitingRack + 1
	// waitingBacklog is the number of single pods that wait at a time while their rate is measured, and
	// waitingAlive the number that run: one ends for each that starts, which makes the scheduler retry
	// the gangs.
	waitingBacklog = 64
	waitingAlive   = 128
	// waitingPace is the time between two pods while their latency is measured.
	waitingPace = 10 * time.Millisecond
	// waitingWithin bounds one case.
	waitingWithin = 10 * time.Minute
)

// beside is the result of scheduling single pods beside waiting gangs: the whole scheduler runs, and
// binds to an API server that responds at once.
type beside struct {
	Gangs  int     `json:"gangs"`
	Higher bool    `json:"higherPriority"` // the gangs' priority is above the pods'
	Gated  bool    `json:"gated"`          // as many gated pods instead of gangs: the cost of the queue itself
	Pods   int     `json:"pods"`
	Rate   float64 `json:"podsPerSecond"`
	Ratio  float64 `json:"ratioToNoneWaiting"`
	Took   spread  `json:"ms"` // of a new pod, from its creation to its Binding
}

// besideGangs runs every case on a cluster of its own; the first has no gangs.
func besideGangs(ctx context.Context, o *options, res *Result, progress io.Writer) (*report.Table, error) {
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		return nil, err
	}
	res.WaitingNodes = o.besideNodes
	for _, gangs := range o.besideGangs {
		for _, w := range []*beside{{Gated: true}, {}, {Higher: true}} {
			if gangs == 0 && (w.Gated || w.Higher) {
				continue
			}
			w.Gangs, w.Pods = gangs, o.besidePods
			if err := w.run(ctx, o.besideNodes, m); err != nil {
				return nil, fmt.Errorf("%s: %w", w.label(), err)
			}
			res.Waiting = append(res.Waiting, w)
			w.Ratio = w.Rate / res.Waiting[0].Rate
			fmt.Fprintf(progress, "%s: %.0f pods/s, p99 %.1f ms\n", w.label(), w.Rate, w.Took.P99)
		}
	}
	title := fmt.Sprintf("Single pods beside gangs that wait, %d nodes in racks of %d, gangs of %d whole nodes in one rack", o.besideNodes, waitingRack, besideMembers)
	return rowsTable(title, res.Waiting, []column{
		{title: "waiting gangs"},
		{title: "pods", figure: "pods"},
		{title: "pods/s", figure: "podsPerSecond"},
		{title: "ratio to none", figure: "ratioToNoneWaiting", decimals: 2},
		{title: "new pod p50 ms", figure: "ms.p50", decimals: 1},
		{title: "p99", figure: "ms.p99", decimals: 1},
		{title: "longest", figure: "ms.max", decimals: 1},
	})
}

func (w *beside) label() string {
	switch {
	case w.Gangs == 0:
		return "none"
	case w.Gated:
		return fmt.Sprintf("none; %d gated pods", w.Gangs*besideMembers)
	case w.Higher:
		return fmt.Sprintf("%d, of a higher priority", w.Gangs)
	}
	return fmt.Sprintf("%d, of the same priority", w.Gangs)
}

func (w *beside) run(ctx context.Context, nodes int, m *machine.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, waitingWithin)
	defer cancel()
	c, err := simulate(nodes, func(i int) int { return i / waitingRack }, m)
	if err != nil {
		return err
	}
	config, err := findProfile("default + ours").decoded()
	if err != nil {
		return err
	}
	r, err := newRig(ctx, config, c, true)
	if err != nil {
		return err
	}
	defer r.stop()
	x := newWorld(ctx, r)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	for g := range w.Gangs {
		for _, pod := range w.gang(g, r.framework.ProfileName()) {
			x.add(pod)
		}
	}
	if _, err := x.backlog(w.Pods / 4); err != nil { // a warm-up
		return err
	}
	if w.Rate, err = x.backlog(w.Pods); err != nil {
		return err
	}
	latencies, err := x.paced(w.Pods)
	if err != nil {
		return err
	}
	w.Took = spreadOf(latencies)
	return nil
}

// gang returns the members of a waiting gang, or as many pods with a scheduling gate.
func (w *beside) gang(number int, scheduler string) []*v1.Pod {
	name := fmt.Sprintf("gang-%04d", number)
	pods := make([]*v1.Pod, besideMembers)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("%s-%d", name, i), fleet.GPUs, scheduler)
		if w.Gated {
			pods[i].Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
			continue
		}
		joinGang(pods[i], name, besideMembers, "rack")
		if w.Higher {
			pods[i].Spec.Priority = new(int32(10))
		}
	}
	return pods
}

// world simulates the rest of a cluster for a running scheduler.
type world struct {
	ctx   context.Context //nolint:containedctx // a world lives for one case
	rig   *rig
	told  chan *v1.Pod // bound pods still to be reported to the informers
	bound chan string  // their names

	mu     sync.Mutex
	pods   map[string]*v1.Pod // as last reported
	notes  map[string]map[string]string
	made   int
	alive  []*v1.Pod
	starts map[string]time.Time
}

// newWorld makes the fake API answer the scheduler's writes.
func newWorld(ctx context.Context, r *rig) *world {
	x := &world{
		ctx: ctx, rig: r, told: make(chan *v1.Pod, 1<<16), bound: make(chan string, 1<<16), pods: map[string]*v1.Pod{},
		notes: map[string]map[string]string{}, starts: map[string]time.Time{},
	}
	r.api.PrependReactor("*", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		switch a := action.(type) {
		case k8stesting.PatchAction:
			return true, x.patched(a), nil
		case k8stesting.CreateAction:
			if b, ok := a.GetObject().(*v1.Binding); ok {
				x.bind(b)
				return true, b, nil
			}
		}
		return false, nil, nil
	})
	go x.tell()
	return x
}

// patched keeps the annotations that are written on a pod. The caller holds x.mu.
func (x *world) patched(patch k8stesting.PatchAction) *v1.Pod {
	var body v1.Pod
	if patch.GetSubresource() == "" && json.Unmarshal(patch.GetPatch(), &body) == nil {
		x.note(patch.GetName(), body.Annotations)
	}
	if pod := x.pods[patch.GetName()]; pod != nil {
		return pod.DeepCopy()
	}
	return &v1.Pod{}
}

// note remembers annotations of a pod. The caller holds x.mu.
func (x *world) note(pod string, notes map[string]string) {
	if x.notes[pod] == nil {
		x.notes[pod] = map[string]string{}
	}
	maps.Copy(x.notes[pod], notes)
}

// bind queues the report of a pod's node to the informers. The caller holds x.mu.
func (x *world) bind(b *v1.Binding) {
	x.note(b.Name, b.Annotations)
	pod := x.pods[b.Name].DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, x.notes[b.Name])
	x.told <- pod
}

// tell reports bindings to the informers, and ends the pod that has run for longest.
func (x *world) tell() {
	for {
		select {
		case <-x.ctx.Done():
			return
		case pod := <-x.told:
			x.mu.Lock()
			pod.ResourceVersion = x.rig.nextVersion()
			x.pods[pod.Name] = pod
			x.alive = append(x.alive, pod)
			var ended *v1.Pod
			if len(x.alive) > waitingAlive {
				ended, x.alive = x.alive[0], x.alive[1:]
				delete(x.pods, ended.Name)
				delete(x.notes, ended.Name)
			}
			x.mu.Unlock()
			x.rig.bound.Modify(pod)
			if ended != nil {
				x.rig.bound.Delete(ended)
			}
			x.bound <- pod.Name
		}
	}
}

// add reports a new pod to the scheduler.
func (x *world) add(pod *v1.Pod) {
	x.mu.Lock()
	pod.ResourceVersion = x.rig.nextVersion()
	x.pods[pod.Name], x.starts[pod.Name] = pod, time.Now()
	x.mu.Unlock()
	x.rig.bound.Add(pod)
}

// single adds the next pod with one GPU.
func (x *world) single() {
	x.made++
	x.add(newPod(fmt.Sprintf("pod-%06d", x.made), 1, x.rig.framework.ProfileName()))
}

// errNotBound reports a case that was not completed.
var errNotBound = errors.New("single pods were not bound in time")

// took returns the time from a pod's creation to its binding, in ms.
func (x *world) took(name string) float64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer delete(x.starts, name)
	return millis(time.Since(x.starts[name]))
}

// backlog returns the rate of bindings per second while more pods always wait.
func (x *world) backlog(pods int) (rate float64, err error) {
	began := time.Now()
	for made, bound := 0, 0; bound < pods; bound++ {
		for made < pods && made-bound < waitingBacklog {
			made++
			x.single()
		}
		select {
		case <-x.ctx.Done():
			return 0, errNotBound
		case name := <-x.bound:
			x.took(name)
		}
	}
	return float64(pods) / time.Since(began).Seconds(), nil
}

// paced returns the latencies, in ms, of pods that are created at a fixed interval, independent of those
// before.
func (x *world) paced(pods int) (took report.Sample, err error) {
	ticker := time.NewTicker(waitingPace)
	defer ticker.Stop()
	for made := 0; len(took) < pods; {
		var tick <-chan time.Time
		if made < pods {
			tick = ticker.C
		}
		select {
		case <-tick:
			made++
			x.single()
		case <-x.ctx.Done():
			return nil, errNotBound
		case name := <-x.bound:
			took = append(took, x.took(name))
		}
	}
	return took, nil
}
