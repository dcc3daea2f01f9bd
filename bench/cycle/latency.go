// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// ownPlugins is a profile without any plugin that is not ours but for those a
// profile must have. The argument is narrowTo.
const ownPlugins = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: ours-alone
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: TopologyAware, weight: 5}, {name: NUMAAffinity, weight: 3}]
  pluginConfig:
  - name: TopologyAware
    args: {narrowTo: %d}
`

const (
	// latencyLoad is the share of the GPUs in use while pods are timed.
	latencyLoad = 0.85
	narrowTo    = 64 // the argument's default
	// patienceEach ends a case on a machine whose picks are slow; its row says how
	// many pods it got to.
	patienceEach = 5 * time.Second
)

// latency is the time our extension points take for one pod, all nodes together:
// PreFilter, then Filter of every node that PreFilter left, PreScore, Score.
type latency struct {
	Machine  string        `json:"machine"`
	Mode     string        `json:"mode"`
	GPUs     int           `json:"gpus"` // of the pod; 0: pods of all sizes
	Pods     int           `json:"pods"`
	Unplaced int           `json:"unplaced"` // for which no node had room
	Nodes    float64       `json:"nodesFilteredPerPod"`
	Micros   report.Sample `json:"-"`
	Reserve  report.Sample `json:"-"`
	P50      float64       `json:"p50Micros"`
	P99      float64       `json:"p99Micros"`
	Max      float64       `json:"maxMicros"`

	ReserveP50 float64 `json:"reserveP50Micros"`
	ReserveP99 float64 `json:"reserveP99Micros"`
}

// latencyCase is one cluster and way of running.
type latencyCase struct {
	machine  *machine.Machine
	mode     string
	narrowTo int
	cold     bool // before the answer tables are built
}

// latencyWorkload has every size that divides the machine of 16.
func latencyWorkload() workload {
	return workload{"mix 1/2/4/8/16", []int{1, 2, 4, 8, 16}, []int{40, 20, 20, 15, 5}}
}

// latencies runs every case on a cluster of its own.
func latencies(ctx context.Context, o *options) ([]*latency, error) {
	dgx2, err := machine.Lookup("dgx2")
	if err != nil {
		return nil, err
	}
	var out []*latency
	for _, c := range []latencyCase{
		{dgx2, "narrowed", narrowTo, false},
		{dgx2, "all nodes", 0, false},
		{dgx2, "narrowed, tables not built yet", narrowTo, true},
		{switched20(), "narrowed", narrowTo, false},
		{switched20(), "all nodes", 0, false},
	} {
		rows, err := c.run(ctx, o.latencyNodes, max(1, o.pods/2), o.seed)
		if err != nil {
			return nil, fmt.Errorf("machines %s, %s: %w", c.machine.Name, c.mode, err)
		}
		fmt.Fprintf(o.log, "%d x %s, %s\n", o.latencyNodes, c.machine.Name, c.mode)
		out = append(out, rows...)
	}
	return out, nil
}

// churn keeps a cluster at latencyLoad while pods come and go.
type churn struct {
	*rig
	snapshot *internalcache.Snapshot
	random   *rand.Rand
	running  []running
	gpus     int // in use
}

type running struct {
	pod   *v1.Pod
	state fwk.CycleState
}

// run returns a row for pods of every size, and one for all.
func (c latencyCase) run(ctx context.Context, nodes, pods int, seed uint64) ([]*latency, error) {
	cl, err := newCluster(nodes, c.machine)
	if err != nil {
		return nil, err
	}
	config, err := decodeConfig(fmt.Appendf(nil, ownPlugins, c.narrowTo))
	if err != nil {
		return nil, err
	}
	config.Parallelism = 1 // what is measured is work, not how it is spread
	r, err := newRig(ctx, config, cl, !c.cold)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	snapshot, ok := r.framework.SnapshotSharedLister().(*internalcache.Snapshot)
	if !ok {
		return nil, fmt.Errorf("the snapshot is %T", r.framework.SnapshotSharedLister())
	}
	x := &churn{rig: r, snapshot: snapshot, random: rand.New(rand.NewPCG(seed, 0x6c6174))}
	all := &latency{Machine: c.machine.Name, Mode: c.mode}
	bySize := map[int]*latency{}
	w := latencyWorkload()
	limit := max(int(latencyLoad*float64(cl.gpus)), slices.Max(w.sizes))
	began := time.Now()
	for i := range pods {
		size := w.draw(x.random)
		for x.gpus+size > limit {
			if err := x.finishOne(ctx); err != nil {
				return nil, err
			}
		}
		if bySize[size] == nil {
			bySize[size] = &latency{Machine: c.machine.Name, Mode: c.mode, GPUs: size}
		}
		if err := x.place(ctx, newPod("pod-"+strconv.Itoa(i), size, r.framework.ProfileName()), all, bySize[size]); err != nil {
			return nil, err
		}
		if time.Since(began) > patienceEach {
			break
		}
	}
	rows := []*latency{all}
	for _, size := range w.sizes {
		if bySize[size] != nil {
			rows = append(rows, bySize[size])
		}
	}
	for _, l := range rows {
		l.P50, l.P99, l.Max = l.Micros.Quantile(0.5), l.Micros.Quantile(0.99), l.Micros.Max()
		if len(l.Reserve) > 0 {
			l.ReserveP50, l.ReserveP99 = l.Reserve.Quantile(0.5), l.Reserve.Quantile(0.99)
		}
	}
	return rows, nil
}

// place times one pod and lets it run where it scored best.
func (x *churn) place(ctx context.Context, pod *v1.Pod, rows ...*latency) error {
	if err := x.Cache.UpdateSnapshot(x.logger, x.snapshot); err != nil {
		return fmt.Errorf("update the snapshot: %w", err)
	}
	state := framework.NewCycleState()
	start := time.Now()
	host, nodes, err := x.rank(ctx, state, pod)
	took := micros(time.Since(start))
	if err != nil {
		return fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	for _, l := range rows {
		l.Pods++
		l.Micros = append(l.Micros, took)
		l.Nodes += (float64(nodes) - l.Nodes) / float64(l.Pods)
		if host == "" {
			l.Unplaced++
		}
	}
	if host == "" {
		return nil
	}
	pod.Spec.NodeName = host
	if err := x.Cache.AssumePod(x.logger, pod); err != nil {
		return fmt.Errorf("assume pod %s: %w", pod.Name, err)
	}
	start = time.Now()
	if s := x.framework.RunReservePluginsReserve(ctx, state, pod, host); !s.IsSuccess() {
		return fmt.Errorf("reserve for pod %s: %w", pod.Name, s.AsError())
	}
	took = micros(time.Since(start))
	for _, l := range rows {
		l.Reserve = append(l.Reserve, took)
	}
	x.running = append(x.running, running{pod, state})
	x.gpus += gpusOf(pod)
	return nil
}

// rank returns the node with the best score, "" if none fits, and how many were filtered.
func (x *churn) rank(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (host string, filtered int, err error) {
	nodes, err := x.snapshot.NodeInfos().List()
	if err != nil {
		return "", 0, fmt.Errorf("list the nodes: %w", err)
	}
	pre, s, _ := x.framework.RunPreFilterPlugins(ctx, state, pod)
	if s.IsRejected() {
		return "", 0, nil
	}
	if !s.IsSuccess() {
		return "", 0, s.AsError()
	}
	if !pre.AllNodes() {
		nodes = make([]fwk.NodeInfo, 0, len(pre.NodeNames))
		for name := range pre.NodeNames {
			info, err := x.snapshot.Get(name)
			if err != nil {
				return "", 0, fmt.Errorf("node %s: %w", name, err)
			}
			nodes = append(nodes, info)
		}
	}
	feasible := make([]fwk.NodeInfo, 0, len(nodes))
	for _, info := range nodes {
		s := x.framework.RunFilterPlugins(ctx, state, pod, info)
		if s.IsSuccess() {
			feasible = append(feasible, info)
		} else if !s.IsRejected() {
			return "", 0, s.AsError()
		}
	}
	if len(feasible) == 0 {
		return "", len(nodes), nil
	}
	if s := x.framework.RunPreScorePlugins(ctx, state, pod, feasible); !s.IsSuccess() {
		return "", 0, s.AsError()
	}
	scores, s := x.framework.RunScorePlugins(ctx, state, pod, feasible)
	if !s.IsSuccess() {
		return "", 0, s.AsError()
	}
	best := slices.MaxFunc(scores, func(a, b fwk.NodePluginScores) int { return int(a.TotalScore - b.TotalScore) })
	return best.Name, len(nodes), nil
}

// finishOne ends one of the running pods.
func (x *churn) finishOne(ctx context.Context) error {
	i := x.random.IntN(len(x.running))
	p := x.running[i]
	x.running = slices.Delete(x.running, i, i+1)
	x.gpus -= gpusOf(p.pod)
	x.framework.RunReservePluginsUnreserve(ctx, p.state, p.pod, p.pod.Spec.NodeName)
	if err := x.Cache.ForgetPod(x.logger, p.pod); err != nil {
		return fmt.Errorf("forget pod %s: %w", p.pod.Name, err)
	}
	return nil
}

func (r *result) latencyTable() *report.Table {
	t := &report.Table{
		Title: fmt.Sprintf("Our PreFilter + Filter + Score alone, µs per pod, %d nodes at %.0f %% load, one thread", r.LatencyNodes, 100*latencyLoad),
		Header: []string{
			"machine, mode, GPUs of the pod", "pods", "unplaced", "nodes filtered", "p50 µs", "p99 µs", "max µs", "Reserve p50 µs", "p99 µs",
		},
	}
	for _, l := range r.Latency {
		size := "any"
		if l.GPUs > 0 {
			size = strconv.Itoa(l.GPUs)
		}
		t.Add(fmt.Sprintf("%s, %s, %s", l.Machine, l.Mode, size), strconv.Itoa(l.Pods), strconv.Itoa(l.Unplaced), fmt.Sprintf("%.1f", l.Nodes),
			fmt.Sprintf("%.1f", l.P50), fmt.Sprintf("%.1f", l.P99), fmt.Sprintf("%.1f", l.Max), fmt.Sprintf("%.1f", l.ReserveP50),
			fmt.Sprintf("%.1f", l.ReserveP99))
	}
	return t
}
