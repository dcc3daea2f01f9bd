// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// Books is all known data of one tenant: the input of a statement.
type Books struct {
	Account  *v1alpha1.TenantAccount
	Prices   *v1alpha1.PriceBook    // nil if there is no price book of the account's name
	Records  []v1alpha1.UsageRecord // of the tenant, in all namespaces
	Batches  []v1alpha1.UsageBatch  // of the tenant, read after the records that they replace
	Invoices []v1alpha1.Invoice     // of the tenant
	Now      time.Time
	// BatchAfter is the time after their end at which records are marked with their invoice, though it
	// is open, to go into a batch; 0: they are not.
	BatchAfter time.Duration
	// Grace is the time after a month at which its invoice is closed. Records that come later are on a
	// later invoice.
	Grace time.Duration
	// Sums are subtotals of ended sessions that are in neither Records nor Batches, for discounts of the
	// scope Session. Summed are all batches; Batches then has only the sessions that are in no sum.
	// Marks is the number of records and batches by the invoice that they are marked with, including
	// those in Sums. A Tally fills all three.
	Sums   []billing.Subtotal
	Summed []v1alpha1.UsageBatch
	Marks  map[string]int
}

// AllBatches returns the batches, including those whose sessions are in Sums.
func (b *Books) AllBatches() []v1alpha1.UsageBatch {
	if b.Summed != nil {
		return b.Summed
	}
	return b.Batches
}

// noCurrency is the code for amounts without a currency, by ISO 4217.
const noCurrency = "XXX"

// book returns the price book, or a book without prices and the reason.
func (b *Books) book() (billing.Book, string) {
	none := billing.Book{Currency: noCurrency, Mode: billing.AllUnits, DiscountScope: billing.PerSession}
	if b.Prices == nil {
		return none, fmt.Sprintf("there is no PriceBook %s: make it, or name another one in the annotation %s of TenantAccount %s",
			PriceBookOf(b.Account), v1alpha1.AnnotationPriceBook, b.Account.Name)
	}
	book, err := BookOf(b.Prices)
	if err != nil {
		return none, err.Error()
	}
	if v := b.otherCurrency(book.Currency); v != nil {
		return none, fmt.Sprintf("PriceBook %s is in %s, and invoice %s of %s in %s: they are never added. Name a price book in %s in the annotation %s of TenantAccount %s",
			b.Prices.Name, book.Currency, v.InvoiceID, v.Tenant, v.Currency, v.Currency, v1alpha1.AnnotationPriceBook, b.Account.Name)
	}
	return book, ""
}

// otherCurrency returns an invoice of the account in another currency than its price book; nil if there
// is none. An open invoice of an earlier account of this name is used only if a record is marked with
// it: the others are deleted.
func (b *Books) otherCurrency(currency string) *v1alpha1.InvoiceSpec {
	account := billing.Account{Tenant: b.Account.Name, UID: string(b.Account.UID)}
	for i := range b.Invoices {
		v := &b.Invoices[i].Spec
		period := periodOf(&v.Period)
		invoice, _ := billing.PageOf(v.InvoiceID)
		counts := v.Finalized || invoice == billing.InvoiceID(account, period) ||
			b.Marks[v.InvoiceID] > 0 ||
			slices.ContainsFunc(b.Records, func(r v1alpha1.UsageRecord) bool { return r.Status.Invoice == v.InvoiceID }) ||
			slices.ContainsFunc(b.Batches, func(batch v1alpha1.UsageBatch) bool { return batch.Spec.Invoice == v.InvoiceID })
		if v.Tenant == b.Account.Name && counts && string(v.Currency) != currency && v.Currency != noCurrency {
			return v
		}
	}
	return nil
}
