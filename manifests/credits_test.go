// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// changeValidator returns what the rules of a kind say of an object that was another one before.
func changeValidator(t *testing.T, kind string) func(obj, old map[string]any) field.ErrorList {
	t.Helper()
	structural := structuralSchema(t, kind)
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	return func(obj, old map[string]any) field.ErrorList {
		errs, _ := rules.Validate(t.Context(), nil, structural, obj, old, celconfig.RuntimeCELCostBudget)
		return errs
	}
}

func aCredit(id, amount string, day int) any {
	return map[string]any{"id": id, "amount": amount, "at": fmt.Sprintf("2026-%02d-%02dT00:00:00Z", 1+day/28, 1+day%28)}
}

func anAccount(credits ...any) map[string]any {
	spec := map[string]any{}
	if len(credits) > 0 {
		spec["credits"] = credits
	}
	return map[string]any{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.TenantAccountKind, "metadata": map[string]any{"name": "team-a"}, "spec": spec}
}

// TestCreditChanges: credits are added at the end, or put together at the beginning with the same sum.
func TestCreditChanges(t *testing.T) {
	one, two, three := aCredit("p1", "100.10", 1), aCredit("p2", "-0.40", 5), aCredit("p3", "7", 9)
	opening := aCredit(v1alpha1.OpeningCredit, "99.70", 5) // of one and two
	const added = "credits: can only be added to"
	for name, tc := range map[string]struct {
		old, is []any
		want    string // empty: it is let
	}{
		"nothing changes":               {old: []any{one, two}, is: []any{one, two}},
		"the first is added":            {is: []any{one}},
		"one is added":                  {old: []any{one}, is: []any{one, two}},
		"one is changed":                {old: []any{one, two}, is: []any{one, aCredit("p2", "0.40", 5)}, want: added},
		"one is taken away":             {old: []any{one, two, three}, is: []any{one, two}, want: added},
		"all are taken away":            {old: []any{one}, want: added},
		"they change places":            {old: []any{one, two}, is: []any{two, one}, want: added},
		"two are put together":          {old: []any{one, two, three}, is: []any{opening, three}},
		"all are":                       {old: []any{one, two}, is: []any{opening}},
		"with a cent less":              {old: []any{one, two, three}, is: []any{aCredit(v1alpha1.OpeningCredit, "99.69", 5), three}, want: added},
		"with a cent more":              {old: []any{one, two, three}, is: []any{aCredit(v1alpha1.OpeningCredit, "99.71", 5), three}, want: added},
		"and another one is changed":    {old: []any{one, two, three}, is: []any{aCredit(v1alpha1.OpeningCredit, "99.60", 5), aCredit("p3", "7.10", 9)}, want: added},
		"under another name":            {old: []any{one, two, three}, is: []any{aCredit("sum", "99.70", 5), three}, want: added},
		"of a time before the last":     {old: []any{one, two, three}, is: []any{aCredit(v1alpha1.OpeningCredit, "99.70", 4), three}, want: added},
		"not the first ones":            {old: []any{one, two, three}, is: []any{one, aCredit(v1alpha1.OpeningCredit, "6.60", 9)}, want: added},
		"again, with more":              {old: []any{opening, three}, is: []any{aCredit(v1alpha1.OpeningCredit, "106.70", 9)}},
		"together and one more":         {old: []any{one, two, three}, is: []any{opening, three, aCredit("p4", "1", 20)}, want: added},
		"somebody adds an opening":      {old: []any{one}, is: []any{one, aCredit(v1alpha1.OpeningCredit, "5", 20)}, want: "credits: the pool controller writes pool.nvtopo.dev/opening"},
		"one of later is added":         {old: []any{opening}, is: []any{opening, aCredit("p4", "1", 6)}},
		"one of earlier is added":       {old: []any{opening}, is: []any{opening, aCredit("p4", "1", 4)}, want: "credits: at is not after that of the opening credit"},
		"one that is in it is repeated": {old: []any{opening, three}, is: []any{opening, three, two}, want: "credits: at is not after that of the opening credit"},
		"a restore":                     {is: []any{opening, three}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range changeValidator(t, v1alpha1.TenantAccountKind)(anAccount(tc.is...), anAccount(tc.old...)) {
				got = append(got, err.Error())
			}
			let := len(got) == 0
			if let != (tc.want == "") || !let && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, tc.want) }) {
				t.Errorf("refused with %q, want %q", got, tc.want)
			}
		})
	}
}

// TestCreditCost: the largest account is changed within the API server's limits of cost.
func TestCreditCost(t *testing.T) {
	long := func(i int) any {
		return map[string]any{
			"id": fmt.Sprintf("%s%04d", strings.Repeat("i", 124), i), "amount": fmt.Sprintf("%d.%02d", 10_000_000+i, i%100), "at": "2026-01-01T00:00:00Z", "note": strings.Repeat("n", 256),
		}
	}
	credits := listOf(1024, long)
	validate := changeValidator(t, v1alpha1.TenantAccountKind)
	for _, err := range validate(anAccount(credits...), anAccount(credits[:1023]...)) {
		t.Errorf("one is added: %v", err)
	}
	var cents int64
	for i := range int64(513) {
		cents += (10_000_000+i)*100 + i%100
	}
	opening := aCredit(v1alpha1.OpeningCredit, fmt.Sprintf("%d.%02d", cents/100, cents%100), 0)
	together := append([]any{opening}, credits[513:]...)
	for _, err := range validate(anAccount(together...), anAccount(credits...)) {
		t.Errorf("half are put together: %v", err)
	}
}
