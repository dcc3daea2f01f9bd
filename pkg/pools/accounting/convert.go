// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// SessionOf converts a record to its session.
func SessionOf(r *v1alpha1.UsageRecord) (billing.Session, error) {
	quantity, err := billing.ParseDecimal(string(r.Spec.Quantity))
	if err != nil {
		return billing.Session{}, fmt.Errorf("record %s/%s: quantity: %w", r.Namespace, r.Name, err)
	}
	s := billing.Session{
		ID: r.Name, Tenant: r.Spec.Tenant, Resource: r.Spec.Resource, Model: names.Model(r.Spec.Model), Quantity: quantity,
		Start: r.Spec.Start.UTC(), Estimated: r.Status.Estimated, Invoice: r.Status.Invoice,
		Rest: names.IsRestRecord(r.Name),
	}
	if r.Status.End != nil {
		s.End = r.Status.End.UTC()
	}
	if r.Status.UnitPrice != "" {
		if s.Fixed, err = fixedOf(&r.Status); err != nil {
			return billing.Session{}, fmt.Errorf("record %s/%s: %w", r.Namespace, r.Name, err)
		}
		// A controller from before prices were fixed may have run since, and recomputed the cost.
		if gross := s.FixedGross(); gross.Minus(s.Fixed.Cost).Sign() < 0 {
			s.Fixed.Cost = gross
		}
	}
	if err := s.Validate(); err != nil {
		return billing.Session{}, fmt.Errorf("record %s/%s: %w", r.Namespace, r.Name, err)
	}
	return s, nil
}

// fixedOf returns the fixed price, seconds and cost in a record's status.
func fixedOf(s *v1alpha1.UsageRecordStatus) (*billing.Fixed, error) {
	price, err := billing.ParseDecimal(string(s.UnitPrice))
	if err != nil {
		return nil, fmt.Errorf("status.unitPrice: %w", err)
	}
	cost, err := billing.ParseAmount(string(s.Cost))
	if err != nil {
		return nil, fmt.Errorf("status.cost: %w", err)
	}
	return &billing.Fixed{UnitPrice: price, Seconds: s.BilledSeconds, Cost: cost}, nil
}

// Fix writes a session's cost into its record's status. Price and seconds never change after that.
func Fix(s *v1alpha1.UsageRecordStatus, c *billing.Charge) {
	s.Cost = v1alpha1.Money(c.Cost.String())
	if !c.NoPrice {
		s.UnitPrice, s.BilledSeconds = v1alpha1.Decimal(c.UnitPrice.String()), c.Seconds
	}
}

// periodOf converts a period to UTC.
func periodOf(p *v1alpha1.BillingPeriod) billing.Period {
	return billing.Period{Start: p.Start.UTC(), End: p.End.UTC()}
}

// PriceBookOf returns the name of the price book that an account uses.
func PriceBookOf(a *v1alpha1.TenantAccount) string {
	return cmp.Or(a.Annotations[v1alpha1.AnnotationPriceBook], v1alpha1.DefaultPriceBook)
}

// BookOf converts a price book. An error names the field.
func BookOf(b *v1alpha1.PriceBook) (billing.Book, error) {
	book := billing.Book{
		Currency: string(b.Spec.Currency), MinPeriodSeconds: 60, // MinPeriodSeconds: the API's default
		Mode: billing.Mode(b.Spec.Mode), DiscountScope: billing.Scope(b.Spec.DiscountScope),
	}
	if b.Spec.MinPeriodSeconds != nil {
		book.MinPeriodSeconds = *b.Spec.MinPeriodSeconds
	}
	var errs []error
	number := func(field string, d v1alpha1.Decimal) billing.Decimal {
		n, err := billing.ParseDecimal(string(d))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
		return n
	}
	for i, p := range b.Spec.Prices {
		model, known := modelOf(b.Spec.Prices, i)
		if !known || strings.HasPrefix(p.Resource, "-") || strings.HasPrefix(p.Resource, ".") { // matches no device
			continue
		}
		price := billing.Price{Resource: p.Resource, Model: model, PerHour: number(fmt.Sprintf("prices[%d].pricePerHour", i), p.PricePerHour)}
		if p.ValidFrom != "" {
			from, err := time.Parse(time.RFC3339, p.ValidFrom)
			if err != nil {
				errs = append(errs, fmt.Errorf("prices[%d].validFrom: want a time such as 2026-12-01T00:00:00Z: %w", i, err))
			}
			price.ValidFrom = from.UTC()
		}
		book.Prices = append(book.Prices, price)
	}
	for i, d := range b.Spec.Discounts {
		book.Discounts = append(book.Discounts, billing.Discount{
			ThresholdHours: number(fmt.Sprintf("discounts[%d].thresholdHours", i), d.ThresholdHours),
			Multiplier:     number(fmt.Sprintf("discounts[%d].multiplier", i), d.Multiplier),
		})
	}
	if len(errs) == 0 {
		errs = append(errs, book.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return billing.Book{}, fmt.Errorf("PriceBook %s: %w", b.Name, err)
	}
	return book, nil
}

// modelOf returns a price's model in the normalized form that records have. known is false where no
// record can match: the normalized form is empty, or another price has the same one.
func modelOf(prices []v1alpha1.Price, i int) (model string, known bool) {
	p := &prices[i]
	if model = names.Model(p.Model); model == p.Model {
		return model, true
	}
	taken := slices.ContainsFunc(prices, func(o v1alpha1.Price) bool {
		return o.Resource == p.Resource && o.ValidFrom == p.ValidFrom && o.Model != p.Model && (o.Model == model || names.Model(o.Model) == model && o.Model < p.Model)
	})
	return model, model != "" && !taken
}

// partsOf maps the device parts in sessions to the whole device; the sessions' quantity is already a
// fraction of it.
func partsOf(sessions []billing.Session) map[string]string {
	parts := map[string]string{}
	for _, s := range sessions {
		if device := units.DeviceOf(s.Resource); device != s.Resource {
			parts[s.Resource] = device
		}
	}
	return parts
}

// AccountOf converts a tenant's account, and validates it.
func AccountOf(a *v1alpha1.TenantAccount) (billing.Account, error) {
	account := billing.Account{Tenant: a.Name, UID: string(a.UID)}
	for i, c := range a.Spec.Credits {
		amount, err := billing.ParseAmount(string(c.Amount))
		if err != nil {
			return billing.Account{}, fmt.Errorf("TenantAccount %s: credits[%d].amount: %w", a.Name, i, err)
		}
		account.Credits = append(account.Credits, billing.Credit{ID: c.ID, Amount: amount, At: c.At.Time})
	}
	return account, account.Validate()
}

// InvoiceOf converts an invoice of the API to its export form.
func InvoiceOf(i *v1alpha1.Invoice) (billing.Invoice, error) {
	total, err := billing.ParseAmount(string(i.Spec.Total))
	v := billing.Invoice{
		ID: i.Spec.InvoiceID, Tenant: i.Spec.Tenant, Currency: string(i.Spec.Currency), Total: total, GeneratedAt: i.Spec.GeneratedAt.UTC(),
		Period: periodOf(&i.Spec.Period),
		Page:   int(i.Spec.Page), Pages: int(i.Spec.Pages),
		Lines: make([]billing.Line, 0, len(i.Spec.LineItems)),
	}
	for _, l := range i.Spec.LineItems {
		line := billing.Line{Resource: l.Resource, Model: l.Model, Sessions: int(l.Sessions), Estimated: int(l.Estimated), NoPrice: l.NoPrice}
		var errs [4]error
		line.Hours, errs[0] = billing.ParseDecimal(string(l.Hours))
		line.UnitPrice, errs[1] = billing.ParseDecimal(string(l.UnitPrice))
		line.Discount, errs[2] = billing.ParseAmount(string(l.Discount))
		line.Subtotal, errs[3] = billing.ParseAmount(string(l.Subtotal))
		err = errors.Join(err, errors.Join(errs[:]...))
		v.Lines = append(v.Lines, line)
	}
	if err == nil {
		err = v.Validate()
	}
	if err != nil {
		return billing.Invoice{}, fmt.Errorf("Invoice %s: %w", i.Name, err) //nolint:staticcheck // it begins with the name of a kind
	}
	return v, nil
}

// specOf converts an invoice to the spec of the API.
func specOf(v billing.Invoice, finalized bool) v1alpha1.InvoiceSpec {
	spec := v1alpha1.InvoiceSpec{
		InvoiceID: v.ID, Tenant: v.Tenant, Currency: v1alpha1.Currency(v.Currency), Total: v1alpha1.Money(v.Total.String()),
		Period:      v1alpha1.BillingPeriod{Start: metav1.NewTime(v.Period.Start), End: metav1.NewTime(v.Period.End)},
		GeneratedAt: metav1.NewTime(v.GeneratedAt), Finalized: finalized,
		Page: int32(v.Page), Pages: int32(v.Pages), //nolint:gosec // at most a thousand
	}
	for _, l := range v.Lines {
		spec.LineItems = append(spec.LineItems, v1alpha1.LineItem{
			Resource: l.Resource, Model: l.Model, Hours: v1alpha1.Decimal(l.Hours.String()), UnitPrice: v1alpha1.Decimal(l.UnitPrice.String()),
			Discount: v1alpha1.Money(l.Discount.String()), Subtotal: v1alpha1.Money(l.Subtotal.String()),
			Sessions: int32(l.Sessions), Estimated: int32(l.Estimated), NoPrice: l.NoPrice, //nolint:gosec // a list in memory has fewer than 2³¹
		})
	}
	return spec
}
