// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestDashboardsAreUpToDate: what is committed is what this program writes.
func TestDashboardsAreUpToDate(t *testing.T) {
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
