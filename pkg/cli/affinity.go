// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/cli/generate"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

type affinityOptions struct {
	src      source
	out      outputFlag
	gpus     string
	cpus     int
	freeCPUs string
}

// affine is the output of affinity.
type affine struct {
	GPUs      []int  `json:"gpus"`
	NUMANodes []int  `json:"numaNodes"` // the GPUs' NUMA nodes, if known
	CPUs      string `json:"cpus"`      // in the kernel's list format
	MemNodes  []int  `json:"memNodes"`  // NUMA nodes to take memory from
	Distance  *int   `json:"distance"`  // greatest distance between two of the GPUs' NUMA nodes; null if one is not known
	Numactl   string `json:"numactl"`
	Docker    string `json:"docker"`

	cpus nvtopo.CPUSet // CPUs as a set
}

func newAffinity() *cobra.Command {
	var o affinityOptions
	cmd := &cobra.Command{
		Use:   "affinity --gpus LIST [flags] [-- COMMAND]",
		Short: "Find the CPUs and NUMA nodes nearest to a set of GPUs",
		Long: `Find the CPUs and NUMA nodes nearest to a set of GPUs, with the lines that start a
program or a container there: the COMMAND, if there is one.

With --cpus N the answer is N CPUs, in equal parts for each of the GPUs' NUMA nodes,
as the scheduler divides them. CPUs of the node itself come first, then those of
the nearest other nodes; whole cores come before single hyper-threads, if the
source knows them. Without --cpus it is all CPUs of the GPUs' NUMA nodes.

CPUs that kubelet reserves according to a NodeGPUTopology are left out, unless
--free-cpus says which CPUs may be used.`,
		Example: `  NVTOPO affinity --machine dgx-a100 --gpus 0,1 --cpus 16
  NVTOPO affinity -f topo.txt --numactl numa.txt --gpus 4-7
  NVTOPO affinity --node gpu-node-7 --gpus 0 --cpus 8 -o json
  NVTOPO affinity --machine dgx-a100 --gpus 0 --cpus 8 -- python train.py`,
		Args: commandArgs,
		RunE: o.run,
	}
	o.src.bind(cmd)
	o.out.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&o.gpus, "gpus", "", "indices of the GPUs, for example 0,2-4 (required)")
	f.IntVar(&o.cpus, "cpus", 0, "how many CPUs (default: all of the GPUs' NUMA nodes)")
	f.StringVar(&o.freeCPUs, "free-cpus", "", "CPUs that may be used, for example 2-31,64-95 (default: all)")
	return cmd
}

func (o *affinityOptions) run(cmd *cobra.Command, command []string) error {
	if err := o.out.check(); err != nil {
		return err
	}
	flags := cmd.Flags()
	switch {
	case !flags.Changed("gpus"):
		return usagef("--gpus is needed")
	case flags.Changed("cpus") && o.cpus < 1:
		return usagef("--cpus %d: want the number of CPUs, 1 or more", o.cpus)
	}
	in, err := o.src.load(cmd)
	if err != nil {
		return err
	}
	set, err := in.parseGPUs("--gpus", o.gpus)
	if err != nil {
		return err
	}
	answer, err := near(in, set, o.cpus, o.freeCPUs)
	if err != nil {
		return err
	}
	answer.writeLines(command)
	return o.out.write(cmd.OutOrStdout(), answer, func(w io.Writer) error { return writeAffinity(w, answer, len(command) > 0) })
}

// near finds the CPUs and NUMA nodes nearest to GPUs: n CPUs, or all of the GPUs' NUMA nodes if n is 0.
// freeCPUs is the value of --free-cpus.
func near(in *input, set nvtopo.Mask, n int, freeCPUs string) (*affine, error) {
	free, err := in.freeCPUs(freeCPUs)
	if err != nil {
		return nil, err
	}
	a := in.graph.Affinity(set)
	cpus := a.CPUs.Minus(a.CPUs.Minus(free))
	if n > 0 {
		cpus = in.graph.SpreadCPUs(a.NUMANodes, free, n)
	}
	switch {
	case len(cpus) > 0:
	case len(free) == 0:
		return nil, noAnswerf("the input names no CPUs that may be used; with captured text --numactl adds them")
	case n > 0:
		return nil, noAnswerf("--cpus %d: only %d CPUs may be used: %s", n, len(free), free)
	default:
		return nil, noAnswerf("the input names no CPUs near GPUs %s; --cpus N takes any", in.list(set))
	}
	out := &affine{
		GPUs: in.members(set), NUMANodes: append([]int{}, a.NUMANodes...), CPUs: cpus.String(),
		MemNodes: memoryNodes(in.graph, a.NUMANodes, cpus), cpus: cpus,
	}
	if a.Unknown == 0 {
		out.Distance = &a.Distance
	}
	return out, nil
}

// freeCPUs returns the usable CPUs: those of the list if it is not empty, else all of the machine.
func (in *input) freeCPUs(list string) (nvtopo.CPUSet, error) {
	var all nvtopo.CPUSet
	for i := range in.graph.NUMANodes {
		all = all.Union(in.graph.NUMANodes[i].CPUs)
	}
	for i := range in.graph.GPUs {
		all = all.Union(in.graph.GPUs[i].CPUs)
	}
	if list != "" {
		free, err := nvtopo.ParseCPUList(list)
		if err != nil {
			return nil, usagef("--free-cpus: %w", err)
		}
		if extra := free.Minus(all); len(all) > 0 && len(extra) > 0 {
			return nil, usagef("--free-cpus: the machine has no CPUs %s", extra)
		}
		return free, nil
	}
	if in.object != nil && in.object.Status.Kubelet != nil {
		reserved, err := nvtopo.ParseCPUList(in.object.Status.Kubelet.ReservedCPUs)
		if err != nil {
			return nil, inputf("status.kubelet.reservedCPUs: %w", err)
		}
		return all.Minus(reserved), nil
	}
	return all, nil
}

// memoryNodes returns the NUMA nodes of the GPUs and of CPUs from elsewhere, without nodes that are known
// to have no memory: binding to such a node fails.
func memoryNodes(g *nvtopo.Graph, nodes []int, cpus nvtopo.CPUSet) []int {
	known := slices.ContainsFunc(g.NUMANodes, func(n nvtopo.NUMANode) bool { return n.Memory > 0 })
	out := []int{}
	for i := range g.NUMANodes {
		n := &g.NUMANodes[i]
		near := slices.Contains(nodes, n.ID) || slices.ContainsFunc(n.CPUs, cpus.Has)
		if near && (!known || n.Memory > 0) {
			out = append(out, n.ID)
		}
	}
	slices.Sort(out)
	return out
}

// writeLines sets the command lines, with the command if it is not empty. Docker reads --gpus as CSV, so a
// list of devices needs quotes of its own inside the shell's.
func (a *affine) writeLines(command []string) {
	mems := ""
	if len(a.MemNodes) > 0 {
		mems = join(a.MemNodes)
	}
	numactl, docker := []string{"numactl", "--physcpubind=" + a.CPUs}, []string{"docker run", "--cpuset-cpus=" + a.CPUs}
	if mems != "" {
		numactl, docker = append(numactl, "--membind="+mems), append(docker, "--cpuset-mems="+mems)
	}
	docker = append(docker, fmt.Sprintf(`--gpus '"device=%s"'`, join(a.GPUs)))
	if len(command) > 0 {
		line := generate.CommandLine(command)
		numactl, docker = append(numactl, "--", line), append(docker, imagePlace, line)
	}
	a.Numactl, a.Docker = strings.Join(numactl, " "), strings.Join(docker, " ")
}

// imagePlace marks where the user has to put an image.
const imagePlace = "IMAGE"

func writeAffinity(w io.Writer, a *affine, complete bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	nodes := join(a.NUMANodes)
	if len(a.NUMANodes) == 0 {
		nodes = "unknown"
	}
	distance := "unknown"
	if a.Distance != nil {
		distance = strconv.Itoa(*a.Distance)
	}
	printf(t, "GPUs\t%s\n", join(a.GPUs))
	printf(t, "NUMA nodes\t%s\n", nodes)
	printf(t, "NUMA distance\t%s\n", distance)
	printf(t, "CPUs\t%s\n", a.CPUs)
	if err := t.Flush(); err != nil {
		return err
	}
	numactl, docker := a.Numactl, a.Docker
	if !complete {
		numactl, docker = numactl+" -- PROGRAM", docker+" "+imagePlace
	}
	printf(w, "\n%s\n%s\n", numactl, docker)
	return nil
}
