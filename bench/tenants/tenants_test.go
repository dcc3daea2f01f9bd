// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// TestJudge: rows whose median is more than twice that of all rows alone are named.
func TestJudge(t *testing.T) {
	rows := []row{
		{Beside: alone, Millis: report.Sample{10, 10}},
		{Beside: "a", Millis: report.Sample{20, 20}},
		{Beside: alone, Millis: report.Sample{10, 12}},
		{Beside: "b", Millis: report.Sample{30, 30}},
	}
	if diff := cmp.Diff([]string{"b: 3.0 times as long as alone, want at most 2"}, judge(rows)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var printed bytes.Buffer
	if err := table(&options{}, rows).Write(&printed); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(printed.String(), "\n| "); n != len(rows)+2 { // a header and a line
		t.Errorf("%d rows in\n%s", n, printed.String())
	}
}

// TestImpossible: an impossible pod is nearly as large as the API server admits, and has the
// most annotations that the admission policies allow.
func TestImpossible(t *testing.T) {
	p := (&cluster{scheduler: "s"}).impossible(0, "ours")
	if len(p.Annotations) != annotations || len(p.Spec.Containers) != containers {
		t.Errorf("%d annotations and %d containers, want %d and %d", len(p.Annotations), len(p.Spec.Containers), annotations, containers)
	}
	body, err := json.Marshal(p.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(body); n < 240<<10 || n > 256<<10 {
		t.Errorf("%d bytes of annotations, want 240 to 256 KiB", n)
	}
}

func TestOptions(t *testing.T) {
	for name, args := range map[string][]string{
		"no nodes": {"-nodes", "0"}, "no pods": {"-pods", "0"}, "no number": {"-streams", "x"}, "a word": {"now"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
