// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommand: a small run has a row for each cell; different results of the two ways would be an
// error.
func TestCommand(t *testing.T) {
	out := t.TempDir()
	var stdout, stderr bytes.Buffer
	args := []string{"-sessions", "10,3000", "-tenants", "1,20", "-kept", "records,batches", "-events", "4", "-out", out}
	if err := command(t.Context(), args, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| 10       | records |       1 |", "| 3000     | batches |      20 |"} {
		if !strings.Contains(stdout.String(), row) {
			t.Errorf("no row %q in\n%s", row, stdout.String())
		}
	}
	if _, err := os.Stat(filepath.Join(out, resultFile)); err != nil {
		t.Error(err)
	}
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-sessions=0":   `"0": want numbers`,
		"-tenants=1,x":  `"1,x": want numbers`,
		"-kept=on-disk": `no "on-disk"`,
		"-events=0":     "-events must be 1 at least",
		"more":          `unexpected argument "more"`,
	} {
		if _, err := parse([]string{args}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
