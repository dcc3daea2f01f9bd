// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// rollUp combines many credits of an account in one, once their invoices are final. It is one write,
// based on the account as it was read: if a credit is added in between, the write fails and is retried.
// The combined credits are logged before, and kept nowhere else.
func (r *reconciler) rollUp(ctx context.Context, books *accounting.Books, statement *accounting.Statement) error {
	if up, err := books.RollUp(statement); err != nil || up == nil {
		return err
	}
	// The cache may not show a new open invoice yet, nor the last credit.
	account := &v1alpha1.TenantAccount{}
	err := r.reader.Get(ctx, client.ObjectKeyFromObject(books.Account), account)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get TenantAccount %s: %w", books.Account.Name, err)
	}
	books, statement, err = r.compute(ctx, account, 0)
	var p *problem
	if errors.As(err, &p) {
		return nil // the next reconciliation writes it in the account's condition
	}
	if err != nil {
		return err
	}
	up, err := books.RollUp(statement)
	if err != nil || up == nil {
		return err
	}
	log := klog.FromContext(ctx)
	for i := range up.Rolled {
		c := &up.Rolled[i]
		log.Info("A credit is to go into the opening credit", "tenant", account.Name, "id", c.ID, "amount", c.Amount, "at", c.At, "note", c.Note)
	}
	patch, err := rollUpPatch(account.ResourceVersion, up)
	if err != nil {
		return err
	}
	account.Spec.Credits = up.Credits
	if err := r.client.Patch(ctx, account, patch, client.FieldOwner(names.FieldOwner)); err != nil {
		return fmt.Errorf("roll up credits of TenantAccount %s: %w", account.Name, err)
	}
	r.events.Eventf(account, v1.EventTypeNormal, eventCreditsRolledUp, "%d credits until %s are one of %s now, and the controller's log has them: their invoices are final",
		len(up.Rolled), up.Credits[0].At.UTC().Format("2006-01-02"), up.Credits[0].Amount)
	return nil
}

// rollUpPatch replaces the combined credits by the opening credit, in the account as it was read. It
// leaves the other credits as they are stored: rewritten, a time with fractions of a second would
// change.
func rollUpPatch(resourceVersion string, up *accounting.RollUp) (client.Patch, error) {
	ops := []map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": resourceVersion}, // another version is a conflict
		{"op": "replace", "path": "/spec/credits/0", "value": up.Credits[0]},
	}
	for range len(up.Rolled) - 1 {
		ops = append(ops, map[string]any{"op": "remove", "path": "/spec/credits/1"})
	}
	data, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, data), nil
}
