// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestDashboards fails if a committed dashboard differs from this program's output.
func TestDashboards(t *testing.T) {
	folder := filepath.Join("..", "..", "manifests", "dashboards")
	written := map[string]bool{}
	for _, d := range all() {
		written[d.file] = true
		want, err := d.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(folder, d.file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("manifests/dashboards/%s is stale: run make dashboards", d.file)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if filepath.Ext(f.Name()) == ".json" && !written[f.Name()] {
			t.Errorf("nothing writes manifests/dashboards/%s", f.Name())
		}
	}
}

// TestLineNames fails if a panel has no legend to tell lines apart, or no tooltip mode, without which
// Grafana shows no value under the pointer.
func TestLineNames(t *testing.T) {
	for _, b := range all() {
		text, err := b.encode()
		if err != nil {
			t.Fatal(err)
		}
		var built struct {
			Panels []struct {
				Type, Title string
				Options     struct {
					Legend  struct{ ShowLegend bool }
					Tooltip struct{ Mode string }
				}
				Targets []struct{ LegendFormat string }
			}
		}
		if err := json.Unmarshal(text, &built); err != nil {
			t.Fatal(err)
		}
		for _, p := range built.Panels {
			if p.Type == "row" {
				continue
			}
			if !p.Options.Legend.ShowLegend || p.Options.Tooltip.Mode == "" {
				t.Errorf("%s: panel %q has legend %t and tooltip %q", b.file, p.Title, p.Options.Legend.ShowLegend, p.Options.Tooltip.Mode)
			}
			for _, target := range p.Targets {
				if target.LegendFormat == "" {
					t.Errorf("%s: panel %q has a query whose lines have no name", b.file, p.Title)
				}
			}
		}
	}
}
