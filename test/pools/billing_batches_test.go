// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// batched checks that sessions that ended long ago move from records into a batch, which never changes,
// and are billed once: while the invoice is open, once it is final, and when a backup restores a record.
// A batch is deleted with the same retention as records.
func batched(t *testing.T, o *office) {
	t.Helper()
	o.batchAfter = time.Hour
	defer func() { o.batchAfter = 0 }()
	o.account(t, "batched", "100")
	const sessions = 30
	var one *poolv1alpha1.UsageRecord
	for i := range sessions {
		one = o.held(t, "batched", "nvidia.com/gpu", "1", november(2, 0), november(2, 1).Add(time.Duration(i)*time.Second))
	}
	var records poolv1alpha1.UsageRecordList
	if err := o.List(t.Context(), &records, client.MatchingFields{"spec.tenant": "batched"}); err != nil {
		t.Fatal(err)
	}
	inRecords := jsonBytes(t, &records) / sessions
	recent := o.held(t, "batched", "nvidia.com/gpu", "1", november(20, 0).Add(-2*time.Minute), november(20, 0).Add(-time.Minute))
	o.open(t, 2)
	batch := o.waitBatched(t, "batched", sessions, recent.Name)
	o.owes(t, "batched", "39.73", "60.27", "0.00")
	o.waitInvoices(t, "batched", map[string]string{"2026-11": "60.27"})

	// etcd stores objects of these kinds as JSON.
	inBatch := jsonBytes(t, batch) / sessions
	t.Logf("an ended session takes %d bytes in a record that is not priced yet and %d in a batch of %d", inRecords, inBatch, sessions)
	if inBatch*3 > inRecords {
		t.Errorf("an ended session takes %d bytes in a batch and %d in a record", inBatch, inRecords)
	}

	changed := batch.DeepCopy()
	changed.Spec.Groups[0].Sessions[0].Cost = "0.00"
	if err := o.Update(t.Context(), changed); !apierrors.IsInvalid(err) {
		t.Errorf("a batch was changed: %v", err)
	}

	lost := &poolv1alpha1.UsageRecord{ObjectMeta: metav1.ObjectMeta{
		Name: one.Name, Namespace: one.Namespace, Finalizers: one.Finalizers,
		Annotations: map[string]string{names.AnnotationRecorded: november(2, 0).Format(time.RFC3339)},
	}, Spec: one.Spec}
	if err := o.Create(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	o.waitBatched(t, "batched", sessions, recent.Name)
	o.owes(t, "batched", "39.73", "60.27", "0.00")

	o.clock.SetTime(november(40, 0))
	o.look(t, "batched")
	invoice := o.waitInvoices(t, "batched", map[string]string{"2026-11": "60.27!"})[0]
	if n := invoice.Spec.LineItems[0].Sessions; n != sessions+1 {
		t.Errorf("the invoice has %d sessions, want %d", n, sessions+1)
	}
	var out strings.Builder
	cmd := cli.New("nvtopo")
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"pool", "usage", "batched", "--period", "2026-11", "-o", "csv", "--kubeconfig", o.Kubeconfig()})
	if err := cmd.ExecuteContext(t.Context()); err != nil || strings.Count(out.String(), ","+invoice.Name+"\n") != sessions+1 {
		t.Errorf("nvtopo pool usage: %v, want %d sessions on %s in\n%s", err, sessions+1, invoice.Name, out.String())
	}

	exported := metav1.NewTime(o.clock.Now())
	before := invoice.DeepCopy()
	invoice.Status.ExportedAt = &exported
	if err := o.Status().Patch(t.Context(), &invoice, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	o.clock.SetTime(exported.Add(keep))
	o.look(t, "batched")
	testkit.Eventually(t, patience, "the batches of the exported invoice are gone", func(ctx context.Context) (bool, string) {
		var batches poolv1alpha1.UsageBatchList
		err := o.List(ctx, &batches, client.MatchingFields{"spec.tenant": "batched"})
		return err == nil && len(batches.Items) == 0, fmt.Sprint(err, len(batches.Items))
	})
	o.owes(t, "batched", "39.73", "60.27", "0.00")
}

// waitBatched waits until a tenant's sessions are in one batch, and only the named record of it exists.
func (o *office) waitBatched(t *testing.T, tenant string, sessions int, record string) *poolv1alpha1.UsageBatch {
	t.Helper()
	var batches poolv1alpha1.UsageBatchList
	testkit.Eventually(t, patience, fmt.Sprint(sessions, " sessions of ", tenant, " are in a batch alone"), func(ctx context.Context) (bool, string) {
		var records poolv1alpha1.UsageRecordList
		of := client.MatchingFields{"spec.tenant": tenant}
		if err := o.List(ctx, &records, of); err != nil {
			return false, err.Error()
		}
		if err := o.List(ctx, &batches, of); err != nil {
			return false, err.Error()
		}
		in := 0
		for i := range batches.Items {
			for g := range batches.Items[i].Spec.Groups {
				in += len(batches.Items[i].Spec.Groups[g].Sessions)
			}
		}
		alone := len(records.Items) == 1 && records.Items[0].Name == record
		return alone && len(batches.Items) == 1 && in == sessions, fmt.Sprintf("%d records, %d batches with %d sessions", len(records.Items), len(batches.Items), in)
	})
	return &batches.Items[0]
}

func jsonBytes(t *testing.T, v any) int {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}
