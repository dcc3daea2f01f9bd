// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/cli/generate"
)

func newGenerateNCCL() *cobra.Command {
	var (
		src source
		cpu generate.CPUModel
	)
	cmd := &cobra.Command{
		Use:   "nccl-topo --arch ARCH [--vendor VENDOR]",
		Short: "Write a machine's topology for NCCL",
		Long: `Write the topology of a machine as XML for NCCL_TOPO_FILE. NCCL finds it by itself on
bare metal; it needs the file where a virtual machine hides PCIe switches or NUMA nodes.
NCCL finds GPUs by their PCI address, so the file is for machines whose addresses are
those of the graph: a virtual machine has its own.

What the graph does not know:
  the processors   say --arch, and for x86_64 --vendor; for GenuineIntel also
                   --family and --model. lscpu prints them
  PCIe switches    made up, so that the distances between GPUs are those of the graph.
                   A distance it does not know counts as one through the processor
  link_speed       that of the GPU's model; 16 GT/s for a model that is not known
  adapters         those that are nearest to a GPU by PIX or PXB are below its switch,
                   by name; NCCL finds the others, their speed and port
  NVSwitches       one for all, as NCCL counts them
  NVLink to CPUs   left out. NCCL finds NVLink-C2C, but not the NVLinks of POWER9 to
                   its processors once the file names others
rank is the GPU's place in the file; NCCL sets its own.`,
		Example: `  NVTOPO generate nccl-topo --machine dgx-a100 --arch x86_64 --vendor AuthenticAMD > topo.xml
  NVTOPO generate nccl-topo --node gpu-node-7 --arch x86_64 --vendor GenuineIntel --family 6 --model 143
  kubectl create configmap nccl-topology --from-file topo.xml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cpu.Arch == "" {
				return usagef("--arch is needed: x86_64, arm64 or ppc64")
			}
			in, err := src.load(cmd)
			if err != nil {
				return err
			}
			data, err := generate.NCCLTopology(in.graph, cpu)
			return writeGenerated(cmd, data, err)
		},
	}
	src.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&cpu.Arch, "arch", "", "architecture of the processors: x86_64, arm64 or ppc64 (required)")
	f.StringVar(&cpu.Vendor, "vendor", "", "with x86_64: GenuineIntel, AuthenticAMD or another that CPUID says")
	f.IntVar(&cpu.Family, "family", 0, "with GenuineIntel: CPU family")
	f.IntVar(&cpu.Model, "model", 0, "with GenuineIntel: CPU model")
	return cmd
}
