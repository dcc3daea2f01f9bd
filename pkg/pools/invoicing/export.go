// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	// exportEvery is the interval of the search for final invoices that were not exported.
	exportEvery = 10 * time.Minute
	// commandTime is the most time that the command may run for a file.
	commandTime = 5 * time.Minute
	// maxOutput is the most bytes of the command's output in the log when it fails.
	maxOutput = 512
)

// exporter writes final invoices and their sessions to files, runs a command on each, for example to
// copy it to an object store, and then records the export in the invoice's status.
type exporter struct {
	client  client.Client
	reader  client.Reader // not the cache: files must be complete
	clock   clock.Clock
	now     clock.PassiveClock // clock of exportedAt, which the deletion of records is based on
	dir     string
	command []string // in which {} is the file; empty: none

	mu     sync.Mutex
	failed map[string]string // guarded by mu; by tenant: error of the last export
}

// NeedLeaderElection makes the manager run the exporter only while it leads.
func (e *exporter) NeedLeaderElection() bool { return true }

// Start exports until ctx ends.
func (e *exporter) Start(ctx context.Context) error {
	for {
		if err := e.all(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Final invoices were not exported; they are tried again", "after", exportEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.clock.After(exportEvery):
		}
	}
}

// all exports the final invoices that were not exported. A failure does not stop the others.
func (e *exporter) all(ctx context.Context) error {
	var invoices v1alpha1.InvoiceList
	if err := e.client.List(ctx, &invoices); err != nil {
		return fmt.Errorf("list invoices: %w", err)
	}
	failed := map[string]string{}
	var errs []error
	for i := range invoices.Items {
		v := &invoices.Items[i]
		if !v.Spec.Finalized || v.Status.ExportedAt != nil {
			continue
		}
		if err := e.export(ctx, v); err != nil {
			errs = append(errs, err)
			failed[v.Spec.Tenant] = cmp.Or(failed[v.Spec.Tenant], err.Error())
		}
	}
	e.mu.Lock()
	e.failed = failed
	e.mu.Unlock()
	return errors.Join(errs...)
}

// problem returns the error of the last export of a tenant's invoices; empty if it succeeded.
func (e *exporter) problem(tenant string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed[tenant]
}

// export writes an invoice and its sessions. It records the export in the status only after the command
// has succeeded for both files.
func (e *exporter) export(ctx context.Context, v *v1alpha1.Invoice) error {
	bill, err := accounting.InvoiceOf(v)
	if err != nil {
		return err
	}
	if filepath.Base(bill.ID) != bill.ID || strings.HasPrefix(bill.ID, ".") {
		return fmt.Errorf("invoice %s: its ID is no name of a file", v.Name)
	}
	sessions, err := e.sessions(ctx, v)
	if err != nil {
		return err
	}
	asJSON := func(w io.Writer) error { return billing.WriteJSON(w, []billing.Invoice{bill}) }
	asCSV := func(w io.Writer) error { return accounting.WriteUsageCSV(w, sessions) }
	if err := errors.Join(e.write(ctx, bill.ID+".csv", asCSV), e.write(ctx, bill.ID+".json", asJSON)); err != nil {
		return fmt.Errorf("export invoice %s: %w", v.Name, err)
	}
	exported := v.DeepCopy()
	exported.Status.ExportedAt = new(metav1.NewTime(e.now.Now()))
	patch := client.MergeFromWithOptions(v, client.MergeFromWithOptimisticLock{})
	if err := e.client.Status().Patch(ctx, exported, patch, client.FieldOwner(names.FieldOwner)); err != nil {
		return fmt.Errorf("write status.exportedAt of invoice %s: %w", v.Name, err)
	}
	return nil
}

// sessions returns the sessions of an invoice, sorted by their ends.
func (e *exporter) sessions(ctx context.Context, v *v1alpha1.Invoice) ([]v1alpha1.UsageRecord, error) {
	var records v1alpha1.UsageRecordList
	if err := e.reader.List(ctx, &records, client.MatchingFields{fieldTenant: v.Spec.Tenant}); err != nil {
		return nil, fmt.Errorf("list records of %s: %w", v.Spec.Tenant, err)
	}
	var batches v1alpha1.UsageBatchList // after the records, as in compute
	if err := e.reader.List(ctx, &batches, client.MatchingFields{fieldTenant: v.Spec.Tenant}); err != nil {
		return nil, fmt.Errorf("list batches of %s: %w", v.Spec.Tenant, err)
	}
	all := accounting.Distinct(append(accounting.InBatches(batches.Items), accounting.Unbatched(records.Items, batches.Items)...))
	all = slices.DeleteFunc(all, func(r v1alpha1.UsageRecord) bool { return r.Status.Invoice != v.Name || r.Status.End == nil })
	slices.SortStableFunc(all, func(a, b v1alpha1.UsageRecord) int { return a.Status.End.Compare(b.Status.End.Time) })
	want := 0
	for _, line := range v.Spec.LineItems {
		want += int(line.Sessions)
	}
	if len(all) != want {
		return nil, fmt.Errorf("export invoice %s: it has %d sessions, and there are records of %d: export it by hand (nvtopo pool invoice %s --export)", v.Name, want, len(all), v.Spec.Tenant)
	}
	return all, nil
}

// write writes a file and runs the command on it.
func (e *exporter) write(ctx context.Context, name string, write func(io.Writer) error) error {
	path := filepath.Join(e.dir, name)
	if err := writeFile(path, write); err != nil {
		return err
	}
	return e.run(ctx, path)
}

// writeFile creates a file with the output of write, whole or not at all.
func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// run runs the command on a file.
func (e *exporter) run(ctx context.Context, path string) error {
	if len(e.command) == 0 {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, commandTime)
	defer stop()
	args := slices.Clone(e.command)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{}", path)
	}
	var output bytes.Buffer
	c := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the operator's own
	c.Stdout, c.Stderr, c.WaitDelay = &output, &output, time.Second
	if err := c.Run(); err != nil {
		said := strings.ToValidUTF8(strings.TrimSpace(output.String()), "")
		// Not in the error, which everyone who may list accounts can read: it may have a signed address.
		klog.FromContext(ctx).Info("The command of the export failed", "command", args[0], "file", path, "said", said[:min(len(said), maxOutput)])
		return fmt.Errorf("command %s: %w; see the controller's log", args[0], err)
	}
	return nil
}

// setExported sets the condition on whether the tenant's final invoices could be exported. It is absent
// until one export fails.
func (r *reconciler) setExported(status *v1alpha1.TenantAccountStatus, account *v1alpha1.TenantAccount) {
	if r.exporter == nil {
		return
	}
	if problem := r.exporter.problem(account.Name); problem != "" {
		r.set(status, account, v1alpha1.ConditionExported, metav1.ConditionFalse, reasonNotExported, problem)
	} else if meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionExported) != nil {
		r.set(status, account, v1alpha1.ConditionExported, metav1.ConditionTrue, reasonExported, "all final invoices were exported")
	}
}
