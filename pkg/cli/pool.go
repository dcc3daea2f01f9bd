// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
)

func newPool() *cobra.Command {
	o := &poolOptions{}
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Pools of GPUs: who holds what, what it costs, what is owed",
		Long: `List the pools of a cluster. The commands below say who holds what of them, how many GPU
hours each tenant used, which sessions it had, and what it owes. They read the cluster of the
kubeconfig; invoice --export and settle write.`,
		Example: `  NVTOPO pool
  NVTOPO pool top training-pool
  NVTOPO pool usage --since 30d
  NVTOPO pool usage team-a --period 2026-11 -o csv
  NVTOPO pool bill team-a
  NVTOPO pool invoice team-a --period 2026-11 -o json`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.list(cmd) },
	}
	o.bind(cmd, plainForms[:]...)
	cmd.AddCommand(newPoolTop(), newPoolUsage(), newPoolBill(), newPoolInvoice(), newPoolSettle())
	return cmd
}

// poolOptions are the flags common to all commands about pools.
type poolOptions struct {
	cluster clusterFlags
	output  string
	forms   []string // the permitted values of output
}

func (o *poolOptions) bind(cmd *cobra.Command, forms ...string) {
	o.cluster.bind(cmd)
	o.forms = forms
	bindForm(cmd, &o.output, forms...)
}

// reader returns a reader of the cluster, or an error if the flags are wrong.
func (o *poolOptions) reader() (*ledger.Reader, error) {
	if err := checkForm(o.output, o.forms...); err != nil {
		return nil, err
	}
	clients, err := o.cluster.clients()
	if err != nil {
		return nil, err
	}
	return ledger.NewReader(clients.dyn), nil
}

// show writes the output in the chosen form.
func (o *poolOptions) show(w io.Writer, asJSON, asTable func(io.Writer) error) error {
	switch o.output {
	case "json":
		return asJSON(w)
	case "yaml":
		return asYAML(w, asJSON)
	}
	return asTable(w)
}

func (o *poolOptions) list(cmd *cobra.Command) error {
	r, err := o.reader()
	if err != nil {
		return err
	}
	pools, err := r.Pools(cmd.Context())
	if err != nil {
		return poolError(err)
	}
	return o.show(cmd.OutOrStdout(), func(w io.Writer) error { return writeJSON(w, pools) }, func(w io.Writer) error { return writePools(w, pools) })
}

func newPoolTop() *cobra.Command {
	o := &poolOptions{}
	cmd := &cobra.Command{
		Use:   "top [POOL]",
		Short: "Who may hold how much of each pool, holds, borrows and waits",
		Long: `Show the shares of a pool, or of all: for each tenant and queue
  USED        devices that admitted jobs hold
  GUARANTEED  devices that it gets whenever it asks
  LIMIT       the most that it may hold
  BORROWED    what of USED is beyond GUARANTEED and what is pinned for jobs that must
              not be preempted
  PENDING     jobs that wait`,
		Example: `  NVTOPO pool top
  NVTOPO pool top training-pool -o json`,
		Args: atMostOne("POOL"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.top(cmd, args) },
	}
	o.bind(cmd, plainForms[:]...)
	return cmd
}

func (o *poolOptions) top(cmd *cobra.Command, args []string) error {
	r, err := o.reader()
	if err != nil {
		return err
	}
	pools, err := r.Pools(cmd.Context())
	if err != nil {
		return poolError(err)
	}
	if len(args) == 1 {
		pools = slices.DeleteFunc(pools, func(p poolv1alpha1.ComputePool) bool { return p.Name != args[0] })
		if len(pools) == 0 {
			return noAnswerf("there is no pool %q", args[0])
		}
	}
	return o.show(cmd.OutOrStdout(), func(w io.Writer) error { return writeJSON(w, pools) }, func(w io.Writer) error { return writeShares(w, pools) })
}

func writePools(w io.Writer, pools []poolv1alpha1.ComputePool) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "POOL\tTYPE\tPHASE\tTOTAL\tRESERVED\tALLOCATED\tAVAILABLE\tNODES")
	for i := range pools {
		p, s := &pools[i], &pools[i].Status
		printf(out, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d/%d\n", p.Name, p.Spec.PoolType, cmp.Or(s.Phase, poolv1alpha1.PoolPending),
			s.TotalCapacity, s.ReservedCapacity, s.AllocatedCapacity, s.AvailableCapacity, s.ReadyNodes, s.Nodes)
	}
	return out.Flush()
}

func writeShares(w io.Writer, pools []poolv1alpha1.ComputePool) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "POOL\tTENANT\tQUEUE\tUSED\tGUARANTEED\tLIMIT\tBORROWED\tPENDING")
	for i := range pools {
		for _, s := range pools[i].Status.Shares {
			printf(out, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", pools[i].Name, cmp.Or(s.Tenant, "-"), cmp.Or(s.Queue, "-"),
				s.Used, s.Guaranteed, s.Limit, s.Borrowed, s.Pending)
		}
	}
	return out.Flush()
}

// writeJSON writes a list; one without entries is [].
func writeJSON[T any](w io.Writer, list []T) error {
	if list == nil {
		list = []T{}
	}
	return encodeJSON(w, "  ", list)
}

func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s takes one %s, %d are given; see '%s --help'", cmd.Name(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("%s takes one %s at most, %d are given; see '%s --help'", cmd.Name(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}
