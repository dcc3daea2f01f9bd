// SPDX-License-Identifier: Apache-2.0

// Command dashboards writes the Grafana dashboards of manifests/dashboards: dashboards FOLDER. It
// is a module of its own, so that the product does not depend on Grafana's SDK.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write writes every dashboard to the file it names.
func write(folder string) error {
	for _, d := range all() {
		text, err := d.encode()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, d.file), text, 0o644); err != nil { //nolint:gosec // for everybody to read
			return fmt.Errorf("write a dashboard: %w", err)
		}
	}
	return nil
}
