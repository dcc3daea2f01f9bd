// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/manifests"
	pluginconfig "github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

const (
	// waitingRack is how many nodes a rack has, and waitingMembers how many whole nodes a gang must have in
	// one: it never fits, however many pods go.
	waitingRack    = 3
	waitingMembers = waitingRack + 1
	// waitingBacklog is how many single pods wait at a time while their number a second is taken, and
	// waitingAlive how many run: one ends for each that starts, which has the gangs tried again.
	waitingBacklog = 64
	waitingAlive   = 128
	// waitingPace is the time between two pods while their latency is taken.
	waitingPace = 10 * time.Millisecond
	// waitingWithin bounds one case.
	waitingWithin = 10 * time.Minute
)

// waiting is how single pods are scheduled beside gangs that wait: the whole scheduler runs, and binds to an API
// server that answers at once.
type waiting struct {
	Gangs  int     `json:"gangs"`
	Higher bool    `json:"higherPriority"` // the gangs' priority is above the pods'
	Gated  bool    `json:"gated"`          // instead of gangs, as many pods with a scheduling gate: what the queue itself costs
	Pods   int     `json:"pods"`
	Rate   float64 `json:"podsPerSecond"`
	Ratio  float64 `json:"ratioToNoneWaiting"`
	P50    float64 `json:"p50Ms"` // of a new pod, from its creation to its Binding
	P99    float64 `json:"p99Ms"`
	Max    float64 `json:"maxMs"`
}

// waitings runs every case on a cluster of its own; the first has no gangs.
func waitings(ctx context.Context, o *options) (out []*waiting, err error) {
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		return nil, err
	}
	shipped, err := manifests.FS.ReadFile(manifests.SchedulerConfigPath)
	if err != nil {
		return nil, fmt.Errorf("read the shipped configuration: %w", err)
	}
	for _, gangs := range o.waitingGangs {
		for _, w := range []*waiting{{Gated: true}, {}, {Higher: true}} {
			if gangs == 0 && (w.Gated || w.Higher) {
				continue
			}
			w.Gangs, w.Pods = gangs, o.waitingPods
			if err := w.run(ctx, o, m, shipped); err != nil {
				return nil, fmt.Errorf("%s: %w", w.label(), err)
			}
			out = append(out, w)
			w.Ratio = w.Rate / out[0].Rate
			fmt.Fprintf(o.log, "%s: %.0f pods/s, p99 %.1f ms\n", w.label(), w.Rate, w.P99)
		}
	}
	return out, nil
}

func (w *waiting) label() string {
	switch {
	case w.Gangs == 0:
		return "none"
	case w.Gated:
		return fmt.Sprintf("none; %d gated pods", w.Gangs*waitingMembers)
	case w.Higher:
		return fmt.Sprintf("%d, of a higher priority", w.Gangs)
	}
	return fmt.Sprintf("%d, of the same priority", w.Gangs)
}

func (w *waiting) run(ctx context.Context, o *options, m *machine.Machine, shipped []byte) error {
	ctx, cancel := context.WithTimeout(ctx, waitingWithin)
	defer cancel()
	c, err := newCluster(o.waitingNodes, m)
	if err != nil {
		return err
	}
	for i, n := range c.nodes {
		n.Labels[rackLabel] = "rack-" + strconv.Itoa(i/waitingRack)
	}
	c.served = true
	config, err := decodeConfig(shipped)
	if err != nil {
		return err
	}
	withoutElection(config)
	r, err := newRig(ctx, config, c, true)
	if err != nil {
		return err
	}
	defer r.stop()
	if err := r.await(ctx, "the racks", func() bool { return r.state.Fabric().HasLevels() && r.state.Fabric().Tree.Len() == len(c.nodes) }); err != nil {
		return err
	}
	x := newService(ctx, r)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	for g := range w.Gangs {
		for _, pod := range w.gang(g, r.framework.ProfileName()) {
			if w.Gated {
				pod.Annotations = nil
				pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
			}
			x.add(pod)
		}
	}
	if err := x.warm(o.waitingPods / 4); err != nil {
		return err
	}
	if w.Rate, err = x.backlog(o.waitingPods); err != nil {
		return err
	}
	latencies, err := x.paced(o.waitingPods)
	if err != nil {
		return err
	}
	w.P50, w.P99, w.Max = latencies.Quantile(0.5), latencies.Quantile(0.99), latencies.Max()
	return nil
}

// withoutElection has the plugins bind without a Lease of a leader, which nobody renews here.
func withoutElection(config *schedconfig.KubeSchedulerConfiguration) {
	for i := range config.Profiles[0].PluginConfig {
		switch args := config.Profiles[0].PluginConfig[i].Args.(type) {
		case *pluginconfig.TopologyAwareArgs:
			args.LeaderLease.Name = ""
		case *pluginconfig.NUMAAffinityArgs:
			args.LeaderLease.Name = ""
		}
	}
}

// gang makes the members of one that waits.
func (w *waiting) gang(number int, scheduler string) []*v1.Pod {
	name := fmt.Sprintf("gang-%04d", number)
	pods := make([]*v1.Pod, waitingMembers)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("%s-%d", name, i), 8, scheduler)
		pods[i].Annotations = map[string]string{
			gangrequest.GangKey: name, gangrequest.GangSizeKey: strconv.Itoa(waitingMembers), gangrequest.RequiredKey: "rack",
		}
		if w.Higher {
			pods[i].Spec.Priority = new(int32(10))
		}
	}
	return pods
}

// service is the rest of a cluster, as a scheduler that runs sees it.
type service struct {
	ctx   context.Context //nolint:containedctx // a service lives for one case
	rig   *rig
	told  chan *v1.Pod // bound pods of which the informers are to be told
	bound chan string  // their names

	mu     sync.Mutex
	pods   map[string]*v1.Pod // as last told of
	notes  map[string]map[string]string
	made   int
	alive  []*v1.Pod
	starts map[string]time.Time
}

// newService has the scheduler's writes answered.
func newService(ctx context.Context, r *rig) *service {
	x := &service{
		ctx: ctx, rig: r, told: make(chan *v1.Pod, 1<<16), bound: make(chan string, 1<<16), pods: map[string]*v1.Pod{},
		notes: map[string]map[string]string{}, starts: map[string]time.Time{},
	}
	r.api.PrependReactor("patch", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(k8stesting.PatchAction)
		if !ok {
			return false, nil, nil
		}
		return true, x.patched(patch), nil
	})
	r.api.PrependReactor("create", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(k8stesting.CreateAction)
		if !ok || action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b, ok := create.GetObject().(*v1.Binding)
		if !ok {
			return false, nil, nil
		}
		x.bind(b)
		return true, b, nil
	})
	go x.tell()
	return x
}

// patched keeps the annotations that are written on a pod.
func (x *service) patched(patch k8stesting.PatchAction) *v1.Pod {
	var body struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if patch.GetSubresource() == "" && json.Unmarshal(patch.GetPatch(), &body) == nil {
		x.note(patch.GetName(), body.Metadata.Annotations)
	}
	if pod := x.pods[patch.GetName()]; pod != nil {
		return pod.DeepCopy()
	}
	return &v1.Pod{}
}

// note needs x.mu.
func (x *service) note(pod string, notes map[string]string) {
	if x.notes[pod] == nil {
		x.notes[pod] = map[string]string{}
	}
	maps.Copy(x.notes[pod], notes)
}

// bind has the informers told of a pod's node.
func (x *service) bind(b *v1.Binding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.note(b.Name, b.Annotations)
	pod := x.pods[b.Name].DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, x.notes[b.Name])
	x.told <- pod
}

// tell tells the informers of what was bound, and ends the pod that has run for longest.
func (x *service) tell() {
	for {
		select {
		case <-x.ctx.Done():
			return
		case pod := <-x.told:
			x.mu.Lock()
			x.version(pod)
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

// version needs x.mu.
func (x *service) version(pod *v1.Pod) {
	x.rig.version++
	pod.ResourceVersion = strconv.Itoa(1 + x.rig.version)
}

// add has the scheduler hear of a new pod.
func (x *service) add(pod *v1.Pod) {
	x.mu.Lock()
	x.version(pod)
	x.pods[pod.Name], x.starts[pod.Name] = pod, time.Now()
	x.mu.Unlock()
	x.rig.bound.Add(pod)
}

// single adds the next pod with one GPU.
func (x *service) single() {
	x.made++
	x.add(newPod(fmt.Sprintf("pod-%06d", x.made), 1, x.rig.framework.ProfileName()))
}

// errNotBound is a case that did not come to its end.
var errNotBound = errors.New("single pods were not bound in time")

// next waits for the next pod that is bound, and returns for how long it has been there.
func (x *service) next() (time.Duration, error) {
	select {
	case <-x.ctx.Done():
		return 0, errNotBound
	case name := <-x.bound:
		x.mu.Lock()
		defer x.mu.Unlock()
		took := time.Since(x.starts[name])
		delete(x.starts, name)
		return took, nil
	}
}

// warm schedules some pods that do not count.
func (x *service) warm(pods int) error {
	_, err := x.backlog(pods)
	return err
}

// backlog is how many pods are bound in a second, while there are always more.
func (x *service) backlog(pods int) (rate float64, err error) {
	began := time.Now()
	for made, bound := 0, 0; bound < pods; bound++ {
		for made < pods && made-bound < waitingBacklog {
			made++
			x.single()
		}
		if _, err := x.next(); err != nil {
			return 0, err
		}
	}
	return float64(pods) / time.Since(began).Seconds(), nil
}

// paced is how long pods take, in ms, of which one comes after the other whatever becomes of those before.
func (x *service) paced(pods int) (took report.Sample, err error) {
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
			x.mu.Lock()
			took = append(took, millis(time.Since(x.starts[name])))
			delete(x.starts, name)
			x.mu.Unlock()
		}
	}
	return took, nil
}

func (r *result) waitingTable() *report.Table {
	t := &report.Table{
		Title:  fmt.Sprintf("Single pods beside gangs that wait, %d nodes in racks of %d, gangs of %d whole nodes in one rack", r.WaitingNodes, waitingRack, waitingMembers),
		Header: []string{"waiting gangs", "pods", "pods/s", "ratio to none", "new pod p50 ms", "p99", "longest"},
	}
	for _, w := range r.Waiting {
		t.Add(w.label(), strconv.Itoa(w.Pods), fmt.Sprintf("%.0f", w.Rate), fmt.Sprintf("%.2f", w.Ratio), fmt.Sprintf("%.1f", w.P50), fmt.Sprintf("%.1f", w.P99), fmt.Sprintf("%.1f", w.Max))
	}
	return t
}
