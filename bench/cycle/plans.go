// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/bench/internal/threadtime"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
)

// gangPlugins is a profile of our plugins for gangs and those a profile must have.
const gangPlugins = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gangs-alone
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: GangPlacement}, {name: TopologyAware, weight: 5}]
`

const (
	planRacks = 50
	planGPUs  = 4 // of a member
	rackLabel = "topology.kubernetes.io/rack"
	// mostGangs bounds the gangs of one size.
	mostGangs = 500
)

// planSizes are the members of a gang.
func planSizes() []int { return []int{4, 64, 1000} }

// plans is the time of the PreFilter that plans a gang, as the clock has it and as its thread
// has run: the former is more by what the thread waited for a core. The first plan of a cluster,
// which asks every node, is told apart from the later ones, which ask those that have changed.
type plans struct {
	Members int           `json:"members"`
	First   float64       `json:"firstThreadMs"`
	Thread  report.Sample `json:"threadMs"`
	Clock   report.Sample `json:"clockMs"`
}

// planning times plans of each size on a cluster of its own.
func planning(ctx context.Context, o *options) (out []*plans, err error) {
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		return nil, err
	}
	for _, members := range planSizes() {
		c, err := newCluster(o.planNodes, m)
		if err != nil {
			return nil, err
		}
		if gangsIn(c, members) < 2 { // there would be no plan but the first
			continue
		}
		for i, n := range c.nodes {
			n.Labels[rackLabel] = "rack-" + strconv.Itoa(i%planRacks)
		}
		p, err := planOn(ctx, c, members)
		if err != nil {
			return nil, fmt.Errorf("gangs of %d: %w", members, err)
		}
		fmt.Fprintf(o.log, "%d nodes: %d plans of %d members\n", o.planNodes, len(p.Thread), members)
		out = append(out, p)
	}
	return out, nil
}

// planOn places one gang after the other until the cluster is as full as pods may make it.
func planOn(ctx context.Context, c *cluster, members int) (*plans, error) {
	config, err := decodeConfig([]byte(gangPlugins))
	if err != nil {
		return nil, err
	}
	c.served = true
	r, err := newRig(ctx, config, c, true)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	if err := r.await(ctx, "the racks", func() bool { return r.state.Fabric().HasLevels() && r.state.Fabric().Tree.Len() == len(c.nodes) }); err != nil {
		return nil, err
	}
	gangs := gangsFor(c, members, r.framework.ProfileName())
	if err := r.tell(ctx, gangs); err != nil {
		return nil, err
	}
	snapshot, ok := r.framework.SnapshotSharedLister().(*internalcache.Snapshot)
	if !ok {
		return nil, fmt.Errorf("the snapshot is %T", r.framework.SnapshotSharedLister())
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := &plans{Members: members}
	for i, pods := range gangs {
		for rank, pod := range pods {
			if rank < 2 { // the second finds its place held, like those after it
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
				p.Thread, p.Clock = append(p.Thread, millis(thread)), append(p.Clock, millis(clock))
			}
		}
	}
	return p, nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// gangsIn is how many gangs a cluster gets.
func gangsIn(c *cluster, members int) int {
	return min(mostGangs, int(fill*float64(c.gpus))/(members*planGPUs))
}

// gangsFor makes gangs that fill the cluster.
func gangsFor(c *cluster, members int, scheduler string) (out [][]*v1.Pod) {
	for g := range gangsIn(c, members) {
		name := fmt.Sprintf("gang-%04d", g)
		pods := make([]*v1.Pod, members)
		for i := range pods {
			pods[i] = newPod(fmt.Sprintf("%s-%04d", name, i), planGPUs, scheduler)
			pods[i].Annotations = map[string]string{gangrequest.GangKey: name, gangrequest.GangSizeKey: strconv.Itoa(members)}
		}
		out = append(out, pods)
	}
	return out
}

// tell has the scheduler hear of the pods, and returns when it knows all gangs to be complete.
func (r *rig) tell(ctx context.Context, gangs [][]*v1.Pod) error {
	for _, pods := range gangs {
		for _, pod := range pods {
			r.version++
			pod.ResourceVersion = strconv.Itoa(1 + r.version)
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

// placeMember times the PreFilter of a member and lets the pod have the node.
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
	if err := r.Cache.AssumePod(r.logger, assumed); err != nil {
		return 0, 0, fmt.Errorf("assume pod %s: %w", pod.Name, err)
	}
	r.SchedulingQueue.DeleteNominatedPodIfExists(assumed)
	if s := r.framework.RunReservePluginsReserve(ctx, state, assumed, assumed.Spec.NodeName); !s.IsSuccess() {
		return 0, 0, fmt.Errorf("reserve for pod %s: %w", pod.Name, s.AsError())
	}
	return thread, clock, nil
}

func (r *result) planTable() *report.Table {
	t := &report.Table{
		Title:  fmt.Sprintf("Plans of gangs alone, ms, %d nodes in %d racks, members of %d GPUs", r.PlanNodes, planRacks, planGPUs),
		Header: []string{"members", "plans", "thread p50", "p99", "longest", "clock p50", "p99", "longest", "the first, thread"},
	}
	for _, p := range r.Plans {
		row := []string{strconv.Itoa(p.Members), strconv.Itoa(len(p.Thread))}
		for _, v := range []float64{
			p.Thread.Median(), p.Thread.Quantile(0.99), p.Thread.Max(), p.Clock.Median(), p.Clock.Quantile(0.99), p.Clock.Max(), p.First,
		} {
			row = append(row, fmt.Sprintf("%.2f", v))
		}
		t.Add(row...)
	}
	return t
}
