// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const invoice = `apiVersion: pool.nvtopo.dev/v1alpha1
kind: Invoice
metadata: {name: inv-1}
spec:
  invoiceID: inv-1
  tenant: team-a
  period: {start: "2026-11-01T00:00:00Z", end: "2026-12-01T00:00:00Z"}
  currency: USD
  lineItems: [{resource: nvidia.com/gpu, hours: "100", unitPrice: "2", discount: "20.00", subtotal: "180.00", sessions: 1}]
  total: "180.00"
  generatedAt: "2026-12-01T00:00:05Z"
`

const record = `apiVersion: pool.nvtopo.dev/v1alpha1
kind: UsageRecord
metadata: {name: 6f1c9a, namespace: ml-workloads}
spec:
  tenant: team-a
  pool: training-pool
  pod: trainer-0
  podUID: 6f1c9a
  node: n1
  resource: nvidia.com/gpu
  quantity: "4"
  start: "2026-11-01T10:00:00Z"
`

func prices(resource, price string) []any {
	return []any{
		map[string]any{"resource": "nvidia.com/gpu", "pricePerHour": "2"},
		map[string]any{"resource": resource, "pricePerHour": price},
	}
}

// priceFrom is a price that is valid from a time on.
func priceFrom(at string) map[string]any {
	return map[string]any{"resource": "nvidia.com/gpu", "validFrom": at, "pricePerHour": "3"}
}

func discounts(threshold, multiplier string) []any {
	return []any{
		map[string]any{"thresholdHours": "100", "multiplier": "0.9"},
		map[string]any{"thresholdHours": threshold, "multiplier": multiplier},
	}
}

var malformedBooks = map[string]mistake{
	"as it is":                        {"metadata.name", "other", ""},
	"a currency in words":             {"spec.currency", "dollar", "spec.currency"},
	"a second price":                  {"spec.prices", prices("amd.com/gpu", "1.999999999"), ""},
	"a resource twice":                {"spec.prices", prices("nvidia.com/gpu", "3"), "spec.prices[1]: Duplicate value"},
	"a price as a fraction":           {"spec.prices", []any{map[string]any{"resource": "nvidia.com/gpu", "pricePerHour": 2.5}}, "spec.prices[0].pricePerHour"},
	"a price below nothing":           {"spec.prices", prices("amd.com/gpu", "-1"), "spec.prices[1].pricePerHour"},
	"a price with an exponent":        {"spec.prices", prices("amd.com/gpu", "1e9"), "spec.prices[1].pricePerHour"},
	"a price of millions":             {"spec.prices", prices("amd.com/gpu", "1000001"), "pricePerHour: at most 1000000"},
	"a price that changes":            {"spec.prices", append(prices("amd.com/gpu", "1"), priceFrom("2026-12-01T00:00:00Z"), priceFrom("2027-01-01T00:00:00Z")), ""},
	"a price that changes twice then": {"spec.prices", []any{priceFrom("2026-12-01T00:00:00Z"), priceFrom("2026-12-01T00:00:00Z")}, "spec.prices[1]: Duplicate value"},
	"a price from midnight elsewhere": {"spec.prices", []any{priceFrom("2026-12-01T00:00:00+01:00")}, "validFrom: a time in UTC with seconds, such as 2026-12-01T00:00:00Z"},
	"a price from a day on":           {"spec.prices", []any{priceFrom("2026-12-01")}, "spec.prices[0].validFrom"},
	"a price from a day that is none": {"spec.prices", []any{priceFrom("2026-02-30T00:00:00Z")}, "spec.prices[0].validFrom"},
	"a price of a CPU":                {"spec.prices", prices("cpu", "1"), "spec.prices[1].resource"},
	"what to do about it":             {"spec.prices", prices("memory", "1"), "resource: an extended resource such as nvidia.com/gpu. Only devices are metered: put what CPU and memory cost into the price of the device"},
	"a period below nothing":          {"spec.minPeriodSeconds", int64(-1), "spec.minPeriodSeconds"},
	"a second discount":               {"spec.discounts", discounts("500", "0"), ""},
	"discounts that descend":          {"spec.discounts", discounts("50", "0.8"), "discounts: thresholdHours must ascend"},
	"a threshold twice":               {"spec.discounts", discounts("100.0", "0.8"), "discounts: thresholdHours must ascend"},
	"a threshold of nothing":          {"spec.discounts", discounts("0", "0.8"), "thresholdHours: above 0"},
	"a discount that makes it dearer": {"spec.discounts", discounts("500", "1.1"), "multiplier: at most 1"},
	"a mode that is none":             {"spec.mode", "Tiered", "spec.mode: Unsupported value"},
	"a scope that is none":            {"spec.discountScope", "Month", "spec.discountScope: Unsupported value"},
}

var changesOfBooks = map[string]mistake{
	"another price":    {"spec.prices", prices("amd.com/gpu", "3"), ""},
	"another currency": {"spec.currency", "CHF", "currency: cannot be changed; make another price book"},
}

// credits are that of the example and another.
func credits(first, id, second string) []any {
	return []any{
		map[string]any{"id": "payment-1", "amount": first, "at": "2026-11-01T00:00:00Z"},
		map[string]any{"id": id, "amount": second, "at": "2026-11-02T00:00:00Z"},
	}
}

var malformedAccounts = map[string]mistake{
	"a name that no tenant has": {"metadata.name", "team.a", "metadata.name: the name of a tenant"},
	"no credits yet":            {"spec.credits", nil, ""},
	"a credit of nothing":       {"spec.credits", credits("1", "b", "0.00"), "amount: is 0"},
	"a credit of a tenth cent":  {"spec.credits", credits("1", "b", "0.001"), "spec.credits[1].amount"},
	"a credit twice":            {"spec.credits", credits("1", "payment-1", "1"), "spec.credits[1]: Duplicate value"},
}

var changesOfAccounts = map[string]mistake{
	"a credit more":         {"spec.credits", credits("1000.00", "b", "-5.50"), ""},
	"another amount":        {"spec.credits", credits("1000.01", "b", "5"), "credits: can only be added to"},
	"one more in front":     {"spec.credits", []any{credits("1", "b", "5")[1], credits("1000.00", "b", "5")[0]}, "credits: can only be added to"},
	"an empty list":         {"spec.credits", []any{}, "credits: can only be added to"},
	"the list is taken out": {"spec.credits", nil, "credits: can only be added to"},
}

var malformedInvoices = map[string]mistake{
	"as it is":                   {"metadata.name", "other", ""},
	"no tenant":                  {"spec.tenant", nil, "spec.tenant: Required"},
	"a period that ends at once": {"spec.period.end", "2026-11-01T00:00:00Z", "period.end: must be after period.start"},
	"a total as a number":        {"spec.total", int64(180), "spec.total"},
	"a total in thousandths":     {"spec.total", "180.001", "spec.total"},
}

var changesOfOpenInvoices = map[string]mistake{
	"computed again":     {"spec.total", "181.00", ""},
	"another tenant":     {"spec.tenant", "team-b", "tenant: cannot be changed"},
	"another period":     {"spec.period.end", "2026-11-30T00:00:00Z", "period: cannot be changed"},
	"it becomes final":   {"spec.finalized", true, ""},
	"another invoice id": {"spec.invoiceID", "inv-2", "invoiceID: cannot be changed"},
}

func finalInvoice(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o := topologyObject(t, invoice)
	setAt(t, o, "metadata.name", "inv-final")
	setAt(t, o, "spec.finalized", true)
	return o
}

var changesOfFinalInvoices = map[string]mistake{
	"a total":         {"spec.total", "181.00", "spec: cannot be changed once the invoice is finalized"},
	"no lines":        {"spec.lineItems", nil, "spec: cannot be changed once"},
	"it is open":      {"spec.finalized", false, "spec: cannot be changed once"},
	"it never was":    {"spec.finalized", nil, "spec: cannot be changed once"},
	"a label of ours": {"metadata.labels", map[string]any{"a": "b"}, ""},
}

var malformedRecords = map[string]mistake{
	"as it is":                {"spec.model", "NVIDIA-H100", ""},
	"a model with a blank":    {"spec.model", "NVIDIA H100", "spec.model"},
	"another pod's name":      {"metadata.name", "7f", "metadata.name: must begin with spec.podUID"},
	"no quantity":             {"spec.quantity", nil, "spec.quantity: Required"},
	"a quantity of nothing":   {"spec.quantity", "0.0", "quantity: above 0"},
	"a part of a device":      {"spec.quantity", "0.428", ""},
	"a start that is no time": {"spec.start", "yesterday", "spec.start"},
}

var changesOfRecords = map[string]mistake{
	"a device more":   {"spec.quantity", "5", "spec: cannot be changed"},
	"an earlier time": {"spec.start", "2026-11-01T09:00:00Z", "spec: cannot be changed"},
}

// endsARecord ends the record of the test before, in steps that stand and some that do not.
func endsARecord(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	records := dyn.Resource(poolv1alpha1.UsageRecordGVR).Namespace("ml-workloads")
	for _, step := range []struct{ status, want string }{
		{`{"end":"2026-11-01T09:59:59Z"}`, "status.end: is before spec.start"},
		{`{"end":"2026-11-01T11:00:00Z"}`, ""},
		{`{"end":"2026-11-01T12:00:00Z"}`, "status.end: cannot be changed"},
		{`null`, "status.end: cannot be changed"},
		{`{"cost":"8.00","unitPrice":"2","billedSeconds":3600,"invoice":"inv-1"}`, ""},
		{`{"unitPrice":"3"}`, "status.unitPrice: cannot be changed"},
		{`{"unitPrice":null}`, "status.unitPrice: cannot be changed"},
		{`{"billedSeconds":7200}`, "status.billedSeconds: cannot be changed"},
		{`{"cost":"7.20"}`, ""},
		{`{"invoice":"inv-2"}`, "status.invoice: cannot be changed"},
		{`{"estimated":true}`, ""},
	} {
		patch := []byte(`{"status":` + step.status + `}`)
		_, err := records.Patch(t.Context(), "6f1c9a", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if step.want != "" || err != nil {
			t.Log(step.status, err)
		}
		answers(t, err, step.want)
	}
}
