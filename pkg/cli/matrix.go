// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// cellOf returns the function that formats a cell for a value of --show.
func cellOf(show string) func(nvtopo.Link) string {
	switch show {
	case "class":
		return func(l nvtopo.Link) string { return l.Class.String() }
	case "pcie":
		return func(l nvtopo.Link) string {
			if l.PCIe == nvtopo.PCIeUnknown {
				return "?"
			}
			return l.PCIe.String()
		}
	case "bandwidth":
		return func(l nvtopo.Link) string { return nvtopo.FormatGBps(l.Bandwidth) }
	case "latency":
		return func(l nvtopo.Link) string { return strconv.FormatFloat(float64(l.Latency)/1e3, 'f', -1, 64) }
	}
	return nil
}

func newMatrix() *cobra.Command {
	var src source
	var show string
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Print the link matrix of the GPUs",
		Long: `Print the link matrix of the GPUs, in the form of "nvidia-smi topo -m".

With --show class, the default, -f can read the output again, without the adapters.
The other values show the bandwidth of each pair in GB/s, its latency in
microseconds, or its PCIe level for any class ("?" if the source does not say).`,
		Example: `  NVTOPO matrix --machine dgx1-v100
  NVTOPO matrix -f topo.txt --gpu-model "NVIDIA A100-SXM4-40GB" --show bandwidth
  NVTOPO matrix --node gpu-node-7 --show pcie`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cell := cellOf(show)
			if cell == nil {
				return usagef("--show %q: want class, bandwidth, latency or pcie", show)
			}
			in, err := src.load(cmd)
			if err != nil {
				return err
			}
			return writeMatrix(cmd.OutOrStdout(), in, cell, show == "class")
		},
	}
	src.bind(cmd)
	cmd.Flags().StringVar(&show, "show", "class", "what a cell says: class, bandwidth (GB/s), latency (µs) or pcie")
	return cmd
}

// writeMatrix prints the matrix, and below it remarks about single devices. The adapters have their own
// table: the graph does not have their links to each other, so the matrix cannot have rows for them.
func writeMatrix(w io.Writer, in *input, cell func(nvtopo.Link) string, withAffinity bool) error {
	g := in.graph
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	writeHeader(t, g)
	if withAffinity {
		fmt.Fprint(t, "\tCPU Affinity\tNUMA Affinity")
	}
	fmt.Fprintln(t)
	for i := range g.GPUs {
		d := &g.GPUs[i]
		printf(t, "GPU%d", d.Index)
		for j := range g.GPUs {
			text := "X"
			if i != j {
				text = cell(g.Link(i, j))
			}
			printf(t, "\t%s", text)
		}
		if withAffinity {
			printf(t, "\t%s\t%s", cmp.Or(d.CPUs.String(), "N/A"), numaName(d.NUMANode))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
	if withAffinity && len(g.NICs) > 0 {
		fmt.Fprint(t, "Adapter\tNUMA")
		writeHeader(t, g)
		fmt.Fprintln(t)
		for k := range g.NICs {
			printf(t, "%s\t%s", g.NICs[k].Name, numaName(g.NICs[k].NUMANode))
			for i := range g.GPUs {
				printf(t, "\t%s", nicLevel(g, k, i))
			}
			fmt.Fprintln(t)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	writeRemarks(&b, in)
	_, err := io.WriteString(w, trimLines(b.String()))
	return err
}

func writeHeader(w io.Writer, g *nvtopo.Graph) {
	for i := range g.GPUs {
		printf(w, "\tGPU%d", g.GPUs[i].Index)
	}
}

// writeRemarks writes the properties of devices that do not fit in the matrix.
func writeRemarks(b *strings.Builder, in *input) {
	g := in.graph
	models := map[string][]int{}
	var order []string
	for i := range g.GPUs {
		m := g.GPUs[i].Model
		if _, ok := models[m]; !ok {
			order = append(order, m)
		}
		models[m] = append(models[m], g.GPUs[i].Index)
	}
	for _, m := range order {
		printf(b, "Model of %s: %s\n", join(models[m]), cmp.Or(m, "unknown"))
	}
	for i := range g.GPUs {
		d := &g.GPUs[i]
		if d.Unhealthy != "" {
			printf(b, "Unhealthy: %d, %s\n", d.Index, d.Unhealthy)
		}
		if d.Degraded != "" {
			printf(b, "Degraded, usable alone only: %d, %s\n", d.Index, d.Degraded)
		}
		if d.MIG {
			printf(b, "Partitioned (MIG): %d\n", d.Index)
		}
	}
	if in.used != 0 {
		printf(b, "Held by pods: %s\n", in.list(in.used))
	}
}

func nicLevel(g *nvtopo.Graph, nic, gpu int) string {
	if levels := g.NICs[nic].Levels; gpu < len(levels) && levels[gpu] != nvtopo.PCIeUnknown {
		return levels[gpu].String()
	}
	return "?"
}

func numaName(id int) string {
	if id == nvtopo.UnknownNUMA {
		return "N/A"
	}
	return strconv.Itoa(id)
}

// trimLines removes the blanks that tabwriter leaves at the end of lines.
func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
