// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
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

const (
	// latencyLoad is the share of the GPUs in use while pods are timed.
	latencyLoad = 0.85
	narrowTo    = 64 // the argument's default
	// patienceEach is the time limit of a case on a machine with slow picks; its row
	// shows how many pods it completed.
	patienceEach = 5 * time.Second
)

// latency is the time of our extension points for one pod, all nodes together: PreFilter,
// then Filter of every node that PreFilter left, PreScore, Score.
type latency struct {
	Machine  string  `json:"machine"`
	Mode     string  `json:"mode"`
	GPUs     int     `json:"gpus"` // of the pod; 0: pods of all sizes
	Pods     int     `json:"pods"`
	Unplaced int     `json:"unplaced"` // pods for which no node had room
	Nodes    float64 `json:"nodesFilteredPerPod"`
	Took     spread  `json:"micros"`
	Reserve  spread  `json:"reserveMicros"`
	took     report.Sample
	reserve  report.Sample
}

// latencyCase is one cluster and mode.
type latencyCase struct {
	machine  *machine.Machine
	mode     string
	narrowTo int
	cold     bool // before the answer tables are built
}

// latencies runs every case on a cluster of its own.
func latencies(ctx context.Context, o *options, res *Result, progress io.Writer) (*report.Table, error) {
	dgx2, err := machine.Lookup("dgx2")
	if err != nil {
		return nil, err
	}
	res.LatencyNodes = o.latencyNodes
	for _, c := range []latencyCase{
		{dgx2, "narrowed", narrowTo, false},
		{dgx2, "all nodes", 0, false},
		{dgx2, "narrowed, tables not built yet", narrowTo, true},
		{switched20(), "narrowed", narrowTo, false},
		{switched20(), "all nodes", 0, false},
	} {
		rows, err := c.run(ctx, o.latencyNodes, upTo16.sizes(max(1, o.Pods/2), o.Seed), o.Seed)
		if err != nil {
			return nil, fmt.Errorf("machines %s, %s: %w", c.machine.Name, c.mode, err)
		}
		fmt.Fprintf(progress, "%d x %s, %s\n", o.latencyNodes, c.machine.Name, c.mode)
		res.Latency = append(res.Latency, rows...)
	}
	title := fmt.Sprintf("Our PreFilter + Filter + Score alone, µs per pod, %d nodes at %.0f %% load, one thread", o.latencyNodes, 100*latencyLoad)
	return rowsTable(title, res.Latency, []column{
		{title: "machine, mode, GPUs of the pod"},
		{title: "pods", figure: "pods"},
		{title: "unplaced", figure: "unplaced"},
		{title: "nodes filtered", figure: "nodesFilteredPerPod", decimals: 1},
		{title: "p50 µs", figure: "micros.p50", decimals: 1},
		{title: "p99 µs", figure: "micros.p99", decimals: 1},
		{title: "max µs", figure: "micros.max", decimals: 1},
		{title: "Reserve p50 µs", figure: "reserveMicros.p50", decimals: 1},
		{title: "p99 µs", figure: "reserveMicros.p99", decimals: 1},
	})
}

func (l *latency) label() string {
	size := "any"
	if l.GPUs > 0 {
		size = strconv.Itoa(l.GPUs)
	}
	return fmt.Sprintf("%s, %s, %s", l.Machine, l.Mode, size)
}

// churn keeps a cluster at latencyLoad while pods start and end.
type churn struct {
	*rig
	snapshot *internalcache.Snapshot
	random   *rand.Rand
	running  []churned
	gpus     int // in use
}

type churned struct {
	pod   *v1.Pod
	state fwk.CycleState
}

// run returns a row for all pods, of the sizes in turn, and one for the pods of each
// size.
func (c latencyCase) run(ctx context.Context, nodes int, sizes []int, seed uint64) ([]*latency, error) {
	cl, err := simulate(nodes, nil, c.machine)
	if err != nil {
		return nil, err
	}
	config, err := ownPlugins("{name: TopologyAware, weight: 5}, {name: NUMAAffinity, weight: 3}", fmt.Sprintf("{name: TopologyAware, args: {narrowTo: %d}}", c.narrowTo))
	if err != nil {
		return nil, err
	}
	config.Parallelism = 1 // the work is measured, not its distribution over threads
	r, err := newRig(ctx, config, cl, !c.cold)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	snapshot, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	x := &churn{rig: r, snapshot: snapshot, random: rand.New(rand.NewPCG(seed, 0x6c6174))}
	rows := []*latency{{Machine: c.machine.Name, Mode: c.mode}}
	for _, s := range upTo16.shares {
		rows = append(rows, &latency{Machine: c.machine.Name, Mode: c.mode, GPUs: s.gpus})
	}
	limit := max(int(latencyLoad*float64(cl.gpus)), slices.Max(sizes))
	began := time.Now()
	for i, size := range sizes {
		for x.gpus+size > limit {
			if err := x.finishOne(ctx); err != nil {
				return nil, err
			}
		}
		of := slices.IndexFunc(rows, func(l *latency) bool { return l.GPUs == size })
		if err := x.place(ctx, newPod(podName(i), size, r.framework.ProfileName()), rows[0], rows[of]); err != nil {
			return nil, err
		}
		if time.Since(began) > patienceEach {
			break
		}
	}
	rows = slices.DeleteFunc(rows, func(l *latency) bool { return l.Pods == 0 })
	for _, l := range rows {
		l.Took, l.Reserve = spreadOf(l.took), spreadOf(l.reserve)
	}
	return rows, nil
}

// place times one pod and places it on the node with the best score.
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
		l.took = append(l.took, took)
		l.Nodes += (float64(nodes) - l.Nodes) / float64(l.Pods)
		if host == "" {
			l.Unplaced++
		}
	}
	if host == "" {
		return nil
	}
	pod.Spec.NodeName = host
	reserving, err := x.assume(ctx, state, pod)
	if err != nil {
		return err
	}
	for _, l := range rows {
		l.reserve = append(l.reserve, micros(reserving))
	}
	x.running = append(x.running, churned{pod, state})
	x.gpus += gpusOf(pod)
	return nil
}

// rank returns the node with the best score, "" if none fits, and the number of filtered
// nodes.
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
