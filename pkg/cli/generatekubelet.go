// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/cli/generate"
)

type kubeletOptions struct {
	src                     source
	kubelet                 generate.Kubelet
	kube, system, available string
}

func newGenerateKubelet() *cobra.Command {
	var o kubeletOptions
	cmd := &cobra.Command{
		Use:   "kubelet-config",
		Short: "Write kubelet's configuration for a machine",
		Long: `Write the part of kubelet's configuration that aligns CPUs, memory and GPUs on one
machine, with the steps that put it into force as comments.

The CPU manager is static. The CPUs of --reserved-cores cores of every NUMA node are
reserved for the system. Of captured text --lscpu or --threads-per-core tells the
hyper-threads of a core; without knowledge of them a core is one CPU. The memory manager
is Static, and what --kube-reserved, --system-reserved and
--eviction-memory keep from pods is divided among the NUMA nodes by their memory.

The topology manager's policy:
  best-effort       aligns what can be aligned, refuses nobody
  restricted        refuses pods that could be on fewer NUMA nodes than are free
  single-numa-node  refuses pods that do not fit into one NUMA node, also those
                    that never do: no pod gets 5 of 8 GPUs on two NUMA nodes
  none              no alignment
The scheduler foresees what kubelet refuses under each of them.`,
		Example: `  NVTOPO generate kubelet-config --node gpu-node-7
  NVTOPO generate kubelet-config --machine dgx-a100 --policy single-numa-node
  NVTOPO generate kubelet-config -f topo.txt --numactl numa.txt --lscpu lscpu.txt --reserved-cores 2`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.src.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&o.kubelet.Policy, "policy", "best-effort", "topology manager policy: none, best-effort, restricted or single-numa-node")
	f.StringVar(&o.kubelet.Scope, "scope", "pod", "topology manager scope: container or pod")
	f.StringVar(&o.kubelet.MemoryManager, "memory-manager", generate.MemoryStatic, "memory manager policy: Static or None")
	f.IntVar(&o.kubelet.ReservedCores, "reserved-cores", 1, "cores of each NUMA node that are reserved for the system")
	f.DurationVar(&o.kubelet.ReconcilePeriod, "reconcile-period", 10*time.Second, "how often the CPU manager puts its CPUs into force again")
	f.StringVar(&o.kube, "kube-reserved", "4Gi", "memory for kubelet and the container runtime")
	f.StringVar(&o.system, "system-reserved", "1Gi", "memory for the rest of the system")
	f.StringVar(&o.available, "eviction-memory", "100Mi", "memory that must stay available, or pods are evicted")
	return cmd
}

func (o *kubeletOptions) run(cmd *cobra.Command) error {
	k := &o.kubelet
	var err error
	if k.KubeReserved, err = parseQuantity("--kube-reserved", o.kube); err != nil {
		return err
	}
	if k.SystemReserved, err = parseQuantity("--system-reserved", o.system); err != nil {
		return err
	}
	if k.EvictionHard, err = parseQuantity("--eviction-memory", o.available); err != nil {
		return err
	}
	in, err := o.src.load(cmd)
	if err != nil {
		return err
	}
	if o.src.node != "" {
		k.Node = in.name
	}
	data, err := k.Write(in.graph)
	return writeGenerated(cmd, data, err)
}
