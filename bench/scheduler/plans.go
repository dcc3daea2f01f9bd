// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/bench/internal/threadtime"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
)

const (
	planRacks = 50
	// planFill is the share of the GPUs that gangs fill, and mostGangs the most gangs of one
	// size.
	planFill  = 0.9
	mostGangs = 500
)

// planSizes returns the numbers of members of a gang.
func planSizes() []int { return []int{4, 64, 1000} }

// plans is the time of the PreFilter that plans a gang, in wall time and in thread time: the
// former is longer by the thread's waits for a core. The first plan of a cluster, which checks
// every node, is separate from the later ones, which check changed nodes only.
type plans struct {
	Members int     `json:"members"`
	Plans   int     `json:"plans"`
	First   float64 `json:"firstThreadMs"`
	Thread  spread  `json:"threadMs"`
	Clock   spread  `json:"clockMs"`
	thread  report.Sample
	clock   report.Sample
}

func (p *plans) label() string { return strconv.Itoa(p.Members) }

// planning times plans of each size on a cluster of its own.
func planning(ctx context.Context, o *options, res *Result, progress io.Writer) (*report.Table, error) {
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		return nil, err
	}
	res.PlanNodes = o.planNodes
	for _, members := range planSizes() {
		c, err := simulate(o.planNodes, func(i int) int { return i % planRacks }, m)
		if err != nil {
			return nil, err
		}
		if gangsIn(c, members) < 2 { // only the first plan would be made
			continue
		}
		p, err := planOn(ctx, c, members)
		if err != nil {
			return nil, fmt.Errorf("gangs of %d: %w", members, err)
		}
		p.Plans, p.Thread, p.Clock = len(p.thread), spreadOf(p.thread), spreadOf(p.clock)
		fmt.Fprintf(progress, "%d nodes: %d plans of %d members\n", o.planNodes, p.Plans, members)
		res.Plans = append(res.Plans, p)
	}
	title := fmt.Sprintf("Plans of gangs alone, ms, %d nodes in %d racks, members of %d GPUs", o.planNodes, planRacks, gangGPUs)
	return rowsTable(title, res.Plans, []column{
		{title: "members"},
		{title: "plans", figure: "plans"},
		{title: "thread p50", figure: "threadMs.p50", decimals: 2},
		{title: "p99", figure: "threadMs.p99", decimals: 2},
		{title: "longest", figure: "threadMs.max", decimals: 2},
		{title: "clock p50", figure: "clockMs.p50", decimals: 2},
		{title: "p99", figure: "clockMs.p99", decimals: 2},
		{title: "longest", figure: "clockMs.max", decimals: 2},
		{title: "the first, thread", figure: "firstThreadMs", decimals: 2},
	})
}

// planOn places one gang after the other until the cluster is filled to planFill.
func planOn(ctx context.Context, c *simulated, members int) (*plans, error) {
	config, err := ownPlugins("{name: GangPlacement}, {name: TopologyAware, weight: 5}", "")
	if err != nil {
		return nil, err
	}
	r, err := newRig(ctx, config, c, true)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	gangs := gangsFor(c, members, r.framework.ProfileName())
	if err := r.tell(ctx, gangs); err != nil {
		return nil, err
	}
	snapshot, err := r.snapshot()
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := &plans{Members: members}
	for i, pods := range gangs {
		for rank, pod := range pods {
			if rank < 2 { // the second finds its place reserved, like those after it
				if err := r.Cache.UpdateSnapshot(r.logger, snapshot); err != nil {
					return nil, fmt.Errorf("update the snapshot: %w", err)
				}
			}
			thread, clock, err := r.placeMember(ctx, pod)
			switch {
			case err != nil:
				return nil, err
			case rank > 0:
			case i == 0:
				p.First = millis(thread)
			default:
				p.thread, p.clock = append(p.thread, millis(thread)), append(p.clock, millis(clock))
			}
		}
	}
	return p, nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// gangsIn returns the number of gangs for a cluster.
func gangsIn(c *simulated, members int) int {
	return min(mostGangs, int(planFill*float64(c.gpus))/(members*gangGPUs))
}

// gangsFor returns gangs that fill the cluster.
func gangsFor(c *simulated, members int, scheduler string) (out [][]*v1.Pod) {
	for g := range gangsIn(c, members) {
		pods := make([]*v1.Pod, members)
		for i := range pods {
			pods[i] = newPod(fmt.Sprintf("gang-%04d-%04d", g, i), gangGPUs, scheduler)
			joinGang(pods[i], fmt.Sprintf("gang-%04d", g), members, "")
		}
		out = append(out, pods)
	}
	return out
}

// tell reports the pods to the scheduler, and returns when it knows all gangs to be complete.
func (r *rig) tell(ctx context.Context, gangs [][]*v1.Pod) error {
	for _, pods := range gangs {
		for _, pod := range pods {
			pod.ResourceVersion = r.nextVersion()
			r.bound.Add(pod)
		}
	}
	last := gangs[len(gangs)-1]
	return r.await(ctx, "the last gang", func() bool {
		for _, p := range r.framework.PreEnqueuePlugins() {
			if p.Name() == gang.Name && !p.PreEnqueue(ctx, last[len(last)-1]).IsSuccess() {
				return false
			}
		}
		return true
	})
}

// placeMember times the PreFilter of a member and assumes the pod on the node.
func (r *rig) placeMember(ctx context.Context, pod *v1.Pod) (thread, clock time.Duration, err error) {
	state := framework.NewCycleState()
	began, start := time.Now(), threadtime.Now()
	result, s, _ := r.framework.RunPreFilterPlugins(ctx, state, pod)
	thread, clock = threadtime.Now()-start, time.Since(began)
	if !s.IsSuccess() || result.AllNodes() || len(result.NodeNames) != 1 {
		return 0, 0, fmt.Errorf("pod %s has no place: %s", pod.Name, s.Message())
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = result.NodeNames.UnsortedList()[0]
	_, err = r.assume(ctx, state, assumed)
	return thread, clock, err
}
