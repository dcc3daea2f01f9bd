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
	// exportEvery is how often final invoices are looked for that were not exported.
	exportEvery = 10 * time.Minute
	// commandTime is how long the command may run for a file.
	commandTime = 5 * time.Minute
	// maxOutput is how much of what a command says is told when it fails.
	maxOutput = 512
)

// exporter writes final invoices and their sessions to files, has a command take each to an object store,
// for example, and then says in the cluster that they were exported.
type exporter struct {
	client  client.Client
	reader  client.Reader // not the cache: nothing may be missing from a file
	clock   clock.Clock
	now     clock.PassiveClock // by which records are deleted later
	dir     string
	command []string // in which {} is the file; empty: none

	mu     sync.Mutex
	failed map[string]string // guarded by mu; by tenant: why the last export failed
}

// NeedLeaderElection has the manager run it while it leads.
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

// all exports the final invoices that were not exported. One that fails keeps no other from it.
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

// problem is why the last export of a tenant's invoices failed; empty if it did not.
func (e *exporter) problem(tenant string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed[tenant]
}

// export writes an invoice and its sessions. Only once the command has taken both files the cluster says
// that it was exported.
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

// sessions are those of an invoice, by their ends.
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

// write writes a file and has the command take it.
func (e *exporter) write(ctx context.Context, name string, write func(io.Writer) error) error {
	path := filepath.Join(e.dir, name)
	if err := writeFile(path, write); err != nil {
		return err
	}
	return e.run(ctx, path)
}

// writeFile has a file with what write writes, whole or not at all.
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

// run has the command take a file.
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
		// Not in the error, which everybody reads who may list accounts: it may have a signed address.
		klog.FromContext(ctx).Info("The command of the export failed", "command", args[0], "file", path, "said", said[:min(len(said), maxOutput)])
		return fmt.Errorf("command %s: %w; see the controller's log", args[0], err)
	}
	return nil
}

// setExported has the condition say whether the tenant's final invoices could be exported. It is absent
// while none failed.
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
