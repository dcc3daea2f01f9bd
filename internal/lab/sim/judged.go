// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"math"

	"github.com/nvtopo/nvtopo/internal/lab/sim/judge"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

func (c *Config) checkJudge() error {
	if !(c.MessageBytes >= 0) || math.IsInf(c.MessageBytes, 0) {
		return fmt.Errorf("message of %v bytes: want 0 or more", c.MessageBytes)
	}
	if c.MessageBytes == 0 {
		if c.RunsByPlacement {
			return errors.New("runs by placement need the bytes of a message")
		}
		return nil
	}
	for i := range c.Nodes {
		if n := c.Nodes[i].Graph.Len(); c.Fabric != nil && n > judge.MostGPUs {
			return fmt.Errorf("node %q: %d GPUs: gangs are judged on machines of up to %d", c.Nodes[i].Name, n, judge.MostGPUs)
		}
	}
	for i := range c.Jobs {
		if c.Jobs[i].GPUs > judge.MostGPUs {
			return fmt.Errorf("job %d: %d GPUs of a pod: placements are judged up to %d", i, c.Jobs[i].GPUs, judge.MostGPUs)
		}
	}
	return nil
}

// judged passes a starting job to the judge, and returns how many seconds it runs: as long as its slowest
// pod if that depends on the placement.
func (r *replay) judged(job int, j *arrival, parts []part, now float64) (float64, error) {
	if r.judge == nil {
		return j.DurationS, nil
	}
	run := j.DurationS
	if r.config.RunsByPlacement {
		slowest := 0.0
		for _, p := range parts {
			s, err := r.judge.Slowdown(r.config.Nodes[p.node].Graph, p.set)
			if err != nil {
				return 0, fmt.Errorf("node %q: %w", r.config.Nodes[p.node].Name, err)
			}
			slowest = max(slowest, s)
		}
		run *= slowest
	}
	if job < r.measures.first {
		return run, nil
	}
	for _, p := range parts {
		if err := r.judge.Add(r.config.Nodes[p.node].Graph, p.set, now-j.ArrivalS, run); err != nil {
			return 0, fmt.Errorf("node %q: %w", r.config.Nodes[p.node].Name, err)
		}
	}
	if r.site != nil && len(parts) > 1 {
		if err := r.judge.AddGang(r.byNode(parts), r.hops(parts), now-j.ArrivalS); err != nil {
			return 0, fmt.Errorf("job %d: %w", j.at, err)
		}
	}
	return run, nil
}

// order lists the nodes of a gang's parts, each once, by the first rank there.
func order(parts []part) (nodes []int) {
	seen := map[int]bool{}
	for _, p := range parts {
		if !seen[p.node] {
			seen[p.node] = true
			nodes = append(nodes, p.node)
		}
	}
	return nodes
}

// byNode returns a gang's GPUs by node.
func (r *replay) byNode(parts []part) (out []judge.Part) {
	sets := map[int]nvtopo.Mask{}
	for _, p := range parts {
		sets[p.node] |= p.set
	}
	for _, n := range order(parts) {
		out = append(out, judge.Part{Graph: r.config.Nodes[n].Graph, Set: sets[n]})
	}
	return out
}

// hops returns the network from each node of a gang to the next, and from the last to the first.
func (r *replay) hops(parts []part) (out []judge.Hop) {
	nodes := order(parts)
	if len(nodes) < 2 {
		return nil
	}
	for i, n := range nodes {
		l := r.site.tree.Between(r.site.number[n], r.site.number[nodes[(i+1)%len(nodes)]])
		out = append(out, judge.Hop{Bandwidth: l.Bandwidth, Latency: l.Latency})
	}
	return out
}

// meanSlowdown returns the ratio of a job's run to DurationS on the best GPUs of the empty machines that
// have room for one of its pods: GPUs over the sum of their throughputs, so that work which is spread
// evenly at load 1 takes all of them. It is 1 where runs do not depend on the placement.
func (r *replay) meanSlowdown() (func(*Job) float64, error) {
	means := make([]float64, len(r.state.sizes.gpus))
	for i, gpus := range r.state.sizes.gpus {
		means[i] = 1
		if !r.config.RunsByPlacement {
			continue
		}
		var done, on float64 // GPUs, and how many of the reference do as much
		for at := range r.state.nodes {
			n := &r.state.nodes[at]
			set, ok := n.kind.tables.PickUsable(n.healthy, n.kind.degraded, n.healthy, gpus, r.state.sizes.constraints[i])
			if !ok {
				continue
			}
			s, err := r.judge.Slowdown(r.config.Nodes[at].Graph, set)
			if err != nil {
				return nil, fmt.Errorf("node %q: %w", r.config.Nodes[at].Name, err)
			}
			done += float64(n.healthy.Len()) / s
			on += float64(n.healthy.Len())
		}
		if done > 0 {
			means[i] = on / done
		}
	}
	return func(j *Job) float64 { return means[r.state.sizes.at(j.GPUs)] }, nil
}
