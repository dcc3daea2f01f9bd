// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// catalogued is one line in the output of machines.
type catalogued struct {
	Name         string `json:"name"`
	GPUs         int32  `json:"gpus"`
	Interconnect string `json:"interconnect"` // best link class, and the GPUs that it joins
	NUMANodes    int32  `json:"numaNodes"`    // with CPUs
	Description  string `json:"description"`
}

func newMachines() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "machines",
		Short: "List the machines of the built-in catalogue",
		Long: `List the machines of the built-in catalogue, for --machine. The catalogue's files say
where each link matrix was published.`,
		Example: `  NVTOPO machines
  NVTOPO machines -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			list := []catalogued{}
			for _, name := range machine.Names() {
				m, err := machine.Lookup(name)
				if err != nil {
					return inputf("%w", err)
				}
				g, err := m.Graph()
				if err != nil {
					return inputf("%w", err)
				}
				s := v1alpha1.FromGraph(name, "", g).Status.Summary
				list = append(list, catalogued{name, s.GPUs, s.Interconnect, s.NUMANodes, m.Description})
			}
			return out.write(cmd.OutOrStdout(), list, func(w io.Writer) error {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintln(t, "NAME\tGPUS\tINTERCONNECT\tNUMA NODES\tDESCRIPTION")
				for _, m := range list {
					printf(t, "%s\t%d\t%s\t%d\t%s\n", m.Name, m.GPUs, m.Interconnect, m.NUMANodes, m.Description)
				}
				return t.Flush()
			})
		},
	}
	out.bind(cmd)
	return cmd
}
