// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// spelled are values that fields are made of by chance.
var spelled = []string{
	"0", "1", "02.50", "0250.00", "-0.00", "12.5", "999999999999999999999999.99", "1000000", "0.000000001", "1e9", ".5", "5.", "+1", " 1", "NaN",
	"NVIDIA-H100-80GB-HBM3", "NVIDIA H100", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "-a", "a-", "=a", "a:b", "a/b", "_", "/", "é", "USD", "usd",
	"2026-12-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-12-01T00:00:00+01:00", "",
}

// TestSchemasAndParsers: the parser of a kind reads every value that the kind's schema accepts. A tenant
// is not billed while its account or price book cannot be read. NVTOPO_SCHEMA_VALUES is the number of
// values to try for each kind.
func TestSchemasAndParsers(t *testing.T) {
	t.Parallel()
	values := 4_000
	if text := os.Getenv("NVTOPO_SCHEMA_VALUES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("NVTOPO_SCHEMA_VALUES=%s: %v", text, err)
		}
		values = n
	}
	for name, tc := range map[string]struct {
		kind   string
		object map[string]any
		fields []string // paths to strings
		parse  func(map[string]any) error
	}{
		"price books": {
			kind: "PriceBook",
			object: map[string]any{"spec": map[string]any{
				"currency": "USD", "minPeriodSeconds": int64(60), "mode": "AllUnits", "discountScope": "Session",
				"prices": []any{
					map[string]any{"resource": "nvidia.com/gpu", "model": "", "validFrom": "", "pricePerHour": "2.00"},
					map[string]any{"resource": "nvidia.com/gpu", "model": "NVIDIA-H100", "validFrom": "2026-12-01T00:00:00Z", "pricePerHour": "3"},
				},
				"discounts": []any{map[string]any{"thresholdHours": "100", "multiplier": "0.9"}, map[string]any{"thresholdHours": "200", "multiplier": "0.8"}},
			}},
			fields: []string{
				"spec.currency", "spec.prices.0.resource", "spec.prices.0.model", "spec.prices.0.validFrom", "spec.prices.0.pricePerHour",
				"spec.prices.1.model", "spec.discounts.0.thresholdHours", "spec.discounts.0.multiplier", "spec.mode",
			},
			parse: func(o map[string]any) error {
				b := &poolv1alpha1.PriceBook{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, b); err != nil {
					return err
				}
				_, err := accounting.BookOf(b)
				return err
			},
		},
		"accounts": {
			kind: "TenantAccount",
			object: map[string]any{"spec": map[string]any{"credits": []any{
				map[string]any{"id": "p-1", "amount": "1000.00", "at": "2026-11-01T00:00:00Z"},
				map[string]any{"id": "p-2", "amount": "-5", "at": "2026-11-02T00:00:00Z"},
			}}},
			fields: []string{"spec.credits.0.id", "spec.credits.0.amount", "spec.credits.1.id", "spec.credits.1.amount"},
			parse: func(o map[string]any) error {
				a := &poolv1alpha1.TenantAccount{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, a); err != nil {
					return err
				}
				_, err := accounting.AccountOf(a)
				return err
			},
		},
		"usage records": {
			kind: "UsageRecord",
			object: map[string]any{
				"spec": map[string]any{
					"tenant": "a", "pool": "p", "pod": "x", "podUID": "u-1", "node": "n1", "resource": "nvidia.com/gpu", "model": "NVIDIA-H100", "quantity": "8",
					"start": "2026-11-01T00:00:00Z",
				},
				"status": map[string]any{"end": "2026-11-01T01:00:00Z", "unitPrice": "2", "billedSeconds": int64(3600), "cost": "16.00"},
			},
			fields: []string{"spec.tenant", "spec.resource", "spec.model", "spec.quantity", "status.unitPrice", "status.cost"},
			parse: func(o map[string]any) error {
				r := &poolv1alpha1.UsageRecord{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, r); err != nil {
					return err
				}
				_, err := accounting.SessionOf(r)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			validate := objectValidator(t, tc.kind)
			tc.object["apiVersion"], tc.object["kind"] = poolv1alpha1.SchemeGroupVersion.String(), tc.kind
			tc.object["metadata"] = map[string]any{"name": "u-1", "namespace": "a", "uid": "u"}
			for _, err := range validate(tc.object) {
				t.Fatalf("the object to begin with: %v", err)
			}
			random := rand.New(rand.NewPCG(33, 3)) //nolint:gosec // tests want the same numbers again
			taken := 0
			for range values {
				o := runtime.DeepCopyJSON(tc.object)
				var changed []string
				for range 1 + random.IntN(2) {
					path := tc.fields[random.IntN(len(tc.fields))]
					setField(o, strings.Split(path, "."), anyText(random))
					changed = append(changed, path)
				}
				if len(validate(o)) > 0 {
					continue
				}
				taken++
				if err := tc.parse(o); err != nil {
					t.Fatalf("the schema takes values of %v which cannot be read: %v", changed, err)
				}
			}
			if taken < values/100 {
				t.Errorf("of %d values the schema takes %d: too few to say anything", values, taken)
			}
			t.Logf("%d values, of which the schema takes %d", values, taken)
		})
	}
}

// setField sets a string in an object; numbers in the path are places in lists.
func setField(o any, path []string, value string) {
	switch o := o.(type) {
	case map[string]any:
		if len(path) == 1 {
			o[path[0]] = value
			return
		}
		setField(o[path[0]], path[1:], value)
	case []any:
		i, _ := strconv.Atoi(path[0])
		setField(o[i], path[1:], value)
	}
}

// anyText is one of the values above, or some of it changed by chance.
func anyText(random *rand.Rand) string {
	text := []rune(spelled[random.IntN(len(spelled))])
	letters := []rune("0123456789.-+ _/:eEzZT")
	for range random.IntN(3) {
		at := random.IntN(len(text) + 1)
		switch random.IntN(3) {
		case 0:
			text = slices.Insert(text, at, letters[random.IntN(len(letters))])
		case 1:
			text = slices.Delete(text, at, min(at+1, len(text)))
		case 2:
			if at < len(text) {
				text[at] = letters[random.IntN(len(letters))]
			}
		}
	}
	return string(text)
}
