// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// WriteUsageCSV writes a row for each session with all fields of its record, among them the pod's owner
// and the cost. The end of an open session is empty.
func WriteUsageCSV(w io.Writer, records []v1alpha1.UsageRecord) error {
	c := csv.NewWriter(w)
	rows := [][]string{{
		"session", "tenant", "namespace", "pool", "queue", "owner", "pod", "pod_uid", "node", "resource", "model", "quantity",
		"start", "end", "estimated", "billed_seconds", "unit_price", "cost", "invoice",
	}}
	for i := range records {
		r := &records[i]
		end := ""
		if r.Status.End != nil {
			end = r.Status.End.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{
			r.Name, r.Spec.Tenant, NamespaceOf(r), r.Spec.Pool, r.Spec.Queue, r.Spec.Owner, r.Spec.Pod, string(r.Spec.PodUID), r.Spec.Node,
			r.Spec.Resource, r.Spec.Model, string(r.Spec.Quantity), r.Spec.Start.UTC().Format(time.RFC3339), end,
			strconv.FormatBool(r.Status.Estimated), strconv.FormatInt(r.Status.BilledSeconds, 10), string(r.Status.UnitPrice), string(r.Status.Cost), r.Status.Invoice,
		})
	}
	return c.WriteAll(rows)
}
