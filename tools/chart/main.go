// SPDX-License-Identifier: Apache-2.0

// Command chart writes the templates of charts/nvtopo from manifests: chart MANIFESTS CHART. The
// manifests are the only source; this program knows the places of the chart's values in them. Templates
// without a manifest (templates/tests, validate.yaml, _helpers.tpl, NOTES.txt) are written by hand.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chart MANIFESTS CHART")
		os.Exit(2)
	}
	if err := write(os.Args[1], filepath.Join(os.Args[2], "templates")); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// write writes every template that has a manifest, and removes the generated ones that have none any
// more.
func write(manifests, folder string) error {
	made, err := templates(os.DirFS(manifests))
	if err != nil {
		return err
	}
	old, err := generated(os.DirFS(folder))
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, ok := made[name]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("remove a template without a manifest: %w", err)
		}
	}
	for name, text := range made {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // for everybody to read
			return fmt.Errorf("make a folder: %w", err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // for everybody to read
			return fmt.Errorf("write a template: %w", err)
		}
	}
	return nil
}
