// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestWeight: a weight is read from a whole number and from one with decimals, and counts to the
// thousandth.
func TestWeight(t *testing.T) {
	for name, tc := range map[string]struct {
		text           string
		wantThousandth int64
		want           string
	}{
		"none":                    {`{"tenant":"a"}`, 1000, `{"tenant":"a"}`},
		"a whole number":          {`{"tenant":"a","weight":3}`, 3000, `{"tenant":"a","weight":3}`},
		"a half":                  {`{"tenant":"a","weight":0.5}`, 500, `{"tenant":"a","weight":0.5}`},
		"a tenth":                 {`{"tenant":"a","weight":0.1}`, 100, `{"tenant":"a","weight":0.1}`},
		"a thousandth":            {`{"tenant":"a","weight":0.001}`, 1, `{"tenant":"a","weight":0.001}`},
		"more than a thousandth":  {`{"tenant":"a","weight":1.0006}`, 1001, `{"tenant":"a","weight":1.0006}`},
		"the most":                {`{"tenant":"a","weight":10000}`, 10_000_000, `{"tenant":"a","weight":10000}`},
		"less than a thousandth":  {`{"tenant":"a","weight":0.0001}`, 1, `{"tenant":"a","weight":0.0001}`},
		"a whole number of tenth": {`{"tenant":"a","weight":2.0}`, 2000, `{"tenant":"a","weight":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			var q TenantQuota
			if err := json.Unmarshal([]byte(tc.text), &q); err != nil {
				t.Fatal(err)
			}
			if got := q.Weight.Thousandths(); got != tc.wantThousandth {
				t.Errorf("%d thousandths, want %d", got, tc.wantThousandth)
			}
			text, err := json.Marshal(q)
			if err != nil || string(text) != tc.want {
				t.Errorf("it is written as %s, %v; want %s", text, err, tc.want)
			}
			m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&q)
			if err != nil {
				t.Fatal(err)
			}
			var again TenantQuota
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &again); err != nil || again.Weight != q.Weight {
				t.Errorf("read back from an unstructured object: %v, %v; want %v", again.Weight, err, q.Weight)
			}
		})
	}
}
