// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
)

// poolSettle has the flags of pool settle.
type poolSettle struct {
	cluster clusterFlags
	end     string
	invoice string
}

func newPoolSettle() *cobra.Command {
	o := &poolSettle{}
	cmd := &cobra.Command{
		Use:   "settle NAMESPACE/RECORD",
		Short: "Say when a session ended whose record was restored without its status",
		Long: `Write when a session ended, and on which final invoice it is, if on one. Backups often have
no status of objects: what such a record knew of its end and invoice is lost, and nobody
bills it until it is settled. It takes no other record. The condition RecordsHeld of the
TenantAccount and 'NVTOPO pool bill' name the records.`,
		Example: `  NVTOPO pool settle team-a/9f0c6a4e-6f0b-4a53-9a6e-2f9f5a1d7c11 --end 2026-11-03T10:15:00Z
  NVTOPO pool settle team-a/9f0c6a4e-6f0b-4a53-9a6e-2f9f5a1d7c11 --end 2026-10-31T22:00:00Z --invoice inv-20261001-20261101-0d3c9b52`,
		Args: exactlyOne("NAMESPACE/RECORD"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.cluster.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&o.end, "end", "", "when the session ended, such as 2026-11-03T10:15:00Z")
	f.StringVar(&o.invoice, "invoice", "", "the final invoice that has the session already (default: none, it is billed by its end)")
	return cmd
}

func (o *poolSettle) run(cmd *cobra.Command, record string) error {
	namespace, name, ok := strings.Cut(record, "/")
	if !ok || namespace == "" || name == "" {
		return usagef("record %q: want NAMESPACE/RECORD, as 'kubectl get usagerecords -A' has them", record)
	}
	end, err := time.Parse(time.RFC3339, o.end)
	if err != nil {
		return usagef("--end %q: want a time such as 2026-11-03T10:15:00Z", o.end)
	}
	clients, err := o.cluster.clients()
	if err != nil {
		return err
	}
	r := ledger.NewReader(clients.dyn)
	if err := r.Settle(cmd.Context(), types.NamespacedName{Namespace: namespace, Name: name}, end, o.invoice, time.Now()); err != nil {
		return poolError(err)
	}
	printf(cmd.OutOrStdout(), "record %s ended at %s\n", record, end.UTC().Format(time.RFC3339))
	return nil
}
