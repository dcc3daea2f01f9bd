// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// TestShortRun sends each kind of request once, in one size: small pods are admitted, long ones are
// refused with the number of excess entries.
func TestShortRun(t *testing.T) {
	o, err := parse([]string{"-sizes", "600", "-rounds", "1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := run(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 2*len(kinds) {
		t.Errorf("%d cells, want two of each of %d kinds", len(cells), len(kinds))
	}
	want := map[string]string{ // in tenants' namespaces
		"a pod like others": "", "512 annotations, 250 KiB": "", "64 misspelled keys, 250 KiB": "", "gates in an annotation": "",
		"annotations": "512 annotations", "annotations of ours": "512 annotations", "annotations of a template": "at most 512 annotations, it has 600",
		"labels of Kueue": "512 labels", "owners": "64 owners", "finalizers": "64 finalizers", "scheduling gates": "at most 64 gates",
		"containers": "", // nothing goes through those of a pod with Kueue's gate
	}
	for i := range cells {
		c := &cells[i]
		if len(c.With) != 1 || len(c.Without) != 1 {
			t.Errorf("%s: %d and %d requests, want one each", c.Kind, len(c.With), len(c.Without))
		}
		if wanted, ok := want[c.Kind]; !ok || c.Tenant && (!strings.Contains(c.Refused, wanted) || wanted == "" && c.Refused != "") {
			t.Errorf("%s: refused with %q, want %q", c.Kind, c.Refused, wanted)
		}
	}
	var printed bytes.Buffer
	if err := table(o, cells).Write(&printed); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(printed.String(), "\n| "); rows != len(cells)+2 { // a header and a line
		t.Errorf("%d rows in\n%s", rows, printed.String())
	}
}

// TestJudge: requests that take too long compared with those without the bindings, or with those of
// half the size, are named.
func TestJudge(t *testing.T) {
	at := func(kind string, size int, with, without float64) cell {
		return cell{Kind: kind, Size: size, With: report.Sample{with}, Without: report.Sample{without}}
	}
	tests := map[string]struct {
		cells []cell
		want  []string
	}{
		"as long as without":     {[]cell{at("a", 0, 100, 100)}, nil},
		"three times as long":    {[]cell{at("a", 0, 300, 100)}, nil},
		"longer than that":       {[]cell{at("a", 0, 350, 100)}, []string{"a, 0, plain: 3.5 times as long with the bindings, want at most 3"}},
		"so short that it is no": {[]cell{at("a", 0, 19, 1)}, nil},
		"linear":                 {[]cell{at("a", 10, 100, 90), at("a", 20, 220, 200)}, nil},
		"the square":             {[]cell{at("a", 10, 100, 90), at("a", 20, 400, 200)}, []string{"a, 20, plain: 4.0 times as long as half of it, want at most 3"}},
		"of another kind":        {[]cell{at("b", 10, 100, 90), at("a", 20, 400, 200)}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, judge(tc.cells)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for name, args := range map[string][]string{
		"no rounds": {"-rounds", "0"}, "no number": {"-sizes", "1,x"}, "not ascending": {"-sizes", "2,1"}, "a word": {"now"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
