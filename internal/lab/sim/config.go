// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// DefaultWarmUp is the share of the jobs after which the cluster is taken to be
// in its steady state.
const DefaultWarmUp = 0.2

// Limits of a configuration; a trace beyond them is a mistake.
const (
	maxPods    = 10_000 // of one job
	maxSeconds = 1e10   // 300 years
)

// Node is one machine of the cluster.
type Node struct {
	Name  string
	Graph *nvtopo.Graph
}

// Job is one job of a trace: a gang of equal pods that start together and end
// together.
type Job struct {
	ArrivalS  float64 // seconds from the start of the trace
	DurationS float64 // seconds a job runs once all its pods have started; see Config.RunsByPlacement
	GPUs      int     // of each pod
	Pods      int     // of the gang
}

// work returns the GPU time of the job in seconds.
func (j *Job) work() float64 { return float64(j.GPUs*j.Pods) * j.DurationS }

// Config configures one replay.
type Config struct {
	Nodes  []Node
	Jobs   []Job  // in any order
	Policy string // see Policies

	// Fabric, if set, is the network between the nodes: each of them and no other is in it.
	// Then GangPolicy takes the place of Policy.
	Fabric *fabric.Tree
	// GangPolicy places jobs of several pods all at once; see GangPolicies. The pods beside
	// them go where "ours" sends them, or else to the node with the fewest free GPUs.
	GangPolicy string
	// MixGangs has the pods of a gang placed by "ours" on GPUs of several models, as pods with
	// allow-mixed-models. Without it only gangs that are too large for each model of the empty cluster are.
	// Other policies never consider models.
	MixGangs bool
	// PatienceS is how many seconds a gang of the policy "ours", from when there is room for
	// it, waits for a domain of the level that the empty cluster has for it.
	PatienceS float64
	// DrainAfterS is the number of seconds without room after which nodes are closed to younger jobs for a
	// gang of the policy "ours", the oldest at a time; 0: never.
	DrainAfterS float64

	// Load rescales the arrivals so that the requested GPU time is this share of the GPU time that the
	// cluster has until the last arrival; 0 leaves them alone.
	Load float64
	// Seed seeds the policies that draw random numbers.
	Seed uint64
	// WarmUp is the share of the jobs, first come first, that are replayed but not
	// measured; see DefaultWarmUp.
	WarmUp float64

	// PodPolicy is the topology policy of those pods whose GPUs can lie within one
	// NUMA node of some machine, and of the kubelets of all machines; the others
	// have best-effort, the zero value.
	PodPolicy nvtopo.Policy
	// Residual weighs the groups of the objective's residual; nil: the default.
	Residual *nvtopo.Weights
	// Tables are shared with other replays; nil: the replay builds its own.
	Tables *Tables
	// Order is how the policy "ours" compares nodes; nil: the default.
	Order *nodeindex.Order

	// MessageBytes is the size of the all-reduce that Result.Judged is about; 0: nothing is judged.
	// With it no job may ask for more than judge.MostGPUs.
	MessageBytes float64
	// RunsByPlacement lets a job run for as long as its GPUs and their links make it: DurationS is
	// then the time on the judge's reference. The load is that of GPUs that the cluster has on
	// average, so that it does not depend on the policy.
	RunsByPlacement bool

	// Planning, if set, is called before the policy plans a gang, and its result after.
	Planning func(pods int) (done func(placed bool))
	// Observe, if set, is called for each pod as it starts, in order of time.
	Observe func(Placement)
}

// Placement is one pod that started.
type Placement struct {
	Job, Pod     int // position in Config.Jobs, and in the gang
	Node         int // position in Config.Nodes
	Set          nvtopo.Mask
	StartS, EndS float64 // in the replay's time: arrivals rescaled
}

// Run replays the jobs. It returns the context's error when that ends first.
func Run(ctx context.Context, c Config) (*Result, error) {
	if c.Fabric != nil {
		c.Policy = c.GangPolicy
	}
	r, err := newReplay(&c)
	if err != nil {
		return nil, fmt.Errorf("simulating %s: %w", c.Policy, err)
	}
	if err := r.prepare(ctx); err != nil {
		return nil, fmt.Errorf("simulating %s: %w", c.Policy, err)
	}
	if err := r.run(ctx); err != nil {
		return nil, fmt.Errorf("simulating %s: %w", c.Policy, err)
	}
	return r.result(), nil
}

func (c *Config) check() error {
	switch {
	case len(c.Nodes) == 0:
		return errors.New("no nodes")
	case len(c.Jobs) == 0:
		return errors.New("no jobs")
	case !(c.Load >= 0) || math.IsInf(c.Load, 0):
		return fmt.Errorf("load %v: want 0 or more", c.Load)
	case !(c.WarmUp >= 0 && c.WarmUp < 1):
		return fmt.Errorf("warm-up %v: want a share from 0 to below 1", c.WarmUp)
	}
	if err := c.checkJudge(); err != nil {
		return err
	}
	if err := c.checkGangTime("patience", c.PatienceS); err != nil {
		return err
	}
	if err := c.checkGangTime("drain after", c.DrainAfterS); err != nil {
		return err
	}
	for i := range c.Jobs {
		if err := c.Jobs[i].check(); err != nil {
			return fmt.Errorf("job %d: %w", i, err)
		}
	}
	return nil
}

// checkGangTime rejects a time that is infinite or absurdly long.
func (c *Config) checkGangTime(what string, seconds float64) error {
	switch {
	case !(seconds >= 0 && seconds <= maxSeconds):
		return fmt.Errorf("%s %v s: want 0 to %g", what, seconds, float64(maxSeconds))
	case seconds > 0 && (c.Fabric == nil || c.GangPolicy != Ours):
		return fmt.Errorf("%s goes with a fabric and the gang policy %q only", what, Ours)
	}
	return nil
}

func (j *Job) check() error {
	switch {
	case !(j.ArrivalS >= 0 && j.ArrivalS <= maxSeconds):
		return fmt.Errorf("arrival %v s: want 0 to %g", j.ArrivalS, float64(maxSeconds))
	case !(j.DurationS > 0 && j.DurationS <= maxSeconds):
		return fmt.Errorf("duration %v s: want above 0 and at most %g", j.DurationS, float64(maxSeconds))
	case j.GPUs < 1 || j.GPUs > nvtopo.MaxGPUs:
		return fmt.Errorf("%d GPUs: want 1 to %d", j.GPUs, nvtopo.MaxGPUs)
	case j.Pods < 1 || j.Pods > maxPods:
		return fmt.Errorf("%d pods: want 1 to %d", j.Pods, maxPods)
	}
	return nil
}

// arrivals returns the jobs that the cluster could ever run, in order of arrival from time 0 on and
// rescaled to the load, with their positions in Config.Jobs. slowdown is the average ratio of a job's run
// to its duration.
func (c *Config) arrivals(capacity func(*Job) bool, slowdown func(*Job) float64, gpus int) []arrival {
	var out []arrival
	var work float64
	for i := range c.Jobs {
		if capacity(&c.Jobs[i]) {
			out = append(out, arrival{Job: c.Jobs[i], at: i})
			work += c.Jobs[i].work() * slowdown(&c.Jobs[i])
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.SortStableFunc(out, func(a, b arrival) int { return cmp.Compare(a.ArrivalS, b.ArrivalS) })
	first, last := out[0].ArrivalS, out[len(out)-1].ArrivalS
	scale := 1.0
	if c.Load > 0 && last > first {
		scale = work / (c.Load * float64(gpus) * (last - first))
	}
	for i := range out {
		out[i].ArrivalS = (out[i].ArrivalS - first) * scale
	}
	return out
}

// arrival is a job and its position in the trace.
type arrival struct {
	Job
	at int
}
