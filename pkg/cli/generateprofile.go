// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/cli/generate"
)

type profileOptions struct {
	workload, annotationWrite string
	flags                     generate.Profile // the values given by flags
}

func newGenerateProfile() *cobra.Command {
	var o profileOptions
	cmd := &cobra.Command{
		Use:   "scheduler-profile",
		Short: "Write a configuration of the scheduler",
		Long: `Write a KubeSchedulerConfiguration for nvtopo-scheduler: the shipped one, with weights
and arguments for a kind of work.

  training   the ring's bandwidth counts most
  inference  latency and fragmentation count most, CPUs and memory near the GPUs are
             preferred, and NUMAAffinity has more weight
  mixed      the shipped weights

A weight of TopologyAware with which the other plugins could outvote the best links is
refused.`,
		Example: `  NVTOPO generate scheduler-profile --workload training
  NVTOPO generate scheduler-profile --workload inference --default-policy single-numa-node
  NVTOPO generate scheduler-profile --bandwidth-weight 0.5 --latency-weight 0.5 --fragmentation-weight 0`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.workload, "workload", string(generate.Mixed), "training, inference or mixed; sets the defaults of the flags below")
	f.StringVar(&o.annotationWrite, "annotation-write", "PreBind", "how annotations are written: PreBind or Binding, which saves a request per pod")
	f.StringVar(&o.flags.SchedulerName, "scheduler-name", release.Profile, "schedulerName of the pods that use the profile")
	f.Int32Var(&o.flags.TopologyWeight, "topology-weight", 0, "weight of the plugin TopologyAware")
	f.Int32Var(&o.flags.NUMAWeight, "numa-weight", 0, "weight of the plugin NUMAAffinity")
	f.Float64Var(&o.flags.BandwidthWeight, "bandwidth-weight", 0, "share of the ring's bandwidth in the score, 0 to 1")
	f.Float64Var(&o.flags.LatencyWeight, "latency-weight", 0, "share of the ring's latency, 0 to 1")
	f.Float64Var(&o.flags.FragmentationWeight, "fragmentation-weight", 0, "share of what a choice costs those who come later, 0 to 1")
	f.StringVar(&o.flags.DefaultPolicy, "default-policy", "", "topology policy of pods that name none")
	f.StringVar(&o.flags.DefaultAffinity, "default-affinity", "", "NUMA affinity of pods that name none: none, preferred or required")
	f.Int64Var(&o.flags.SameNUMABonus, "same-numa-bonus", 0, "points for a choice in one NUMA node, 0 to 100")
	f.Int64Var(&o.flags.CrossNUMAPenalty, "cross-numa-penalty", 0, "points lost for each further NUMA node, 0 to 100")
	f.Int32Var(&o.flags.NarrowTo, "narrow-to", 0, "most nodes that a scheduling cycle looks at; 0 is all")
	f.StringVar(&o.flags.UnenforcedNodes, "unenforced-nodes", "", "nodes without a working node agent: Allow, WholeNodeOnly or Refuse")
	return cmd
}

func (o *profileOptions) run(cmd *cobra.Command) error {
	p, err := generate.ProfileFor(generate.Workload(o.workload))
	if err != nil {
		return usagef("--workload: %w", err)
	}
	switch o.annotationWrite {
	case "PreBind":
	case "Binding":
		p.OnBinding = true
	default:
		return usagef("--annotation-write %q: want PreBind or Binding", o.annotationWrite)
	}
	given, g := cmd.Flags().Changed, &o.flags
	p.SchedulerName = g.SchedulerName
	take(given("topology-weight"), &p.TopologyWeight, g.TopologyWeight)
	take(given("numa-weight"), &p.NUMAWeight, g.NUMAWeight)
	take(given("bandwidth-weight"), &p.BandwidthWeight, g.BandwidthWeight)
	take(given("latency-weight"), &p.LatencyWeight, g.LatencyWeight)
	take(given("fragmentation-weight"), &p.FragmentationWeight, g.FragmentationWeight)
	take(given("default-policy"), &p.DefaultPolicy, g.DefaultPolicy)
	take(given("default-affinity"), &p.DefaultAffinity, g.DefaultAffinity)
	take(given("same-numa-bonus"), &p.SameNUMABonus, g.SameNUMABonus)
	take(given("cross-numa-penalty"), &p.CrossNUMAPenalty, g.CrossNUMAPenalty)
	take(given("narrow-to"), &p.NarrowTo, g.NarrowTo)
	take(given("unenforced-nodes"), &p.UnenforcedNodes, g.UnenforcedNodes)
	data, err := p.Write()
	return writeGenerated(cmd, data, err)
}

// take sets a value if its flag is given.
func take[T any](given bool, to *T, value T) {
	if given {
		*to = value
	}
}
