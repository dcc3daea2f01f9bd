// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nvtopo/nvtopo/test/mutants"
)

// loadResults reads the saved results of mutants, by name.
func loadResults(path string) (map[string]result, error) {
	out := map[string]result{}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return out, nil
	case err != nil:
		return nil, err
	}
	return out, json.Unmarshal(text, &out)
}

func saveResults(path string, known map[string]result) error {
	text, err := json.MarshalIndent(known, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// report writes the table and the number of killed mutants; an error if one was not killed.
func report(out io.Writer, path string, all []mutants.Mutant, results []result) error {
	var table strings.Builder
	table.WriteString("| mutant | what goes wrong | killed by | package | tier | seconds |\n|---|---|---|---|---|---:|\n")
	n := 0
	for i := range results {
		r := &results[i]
		by := string(r.Outcome)
		if r.Outcome == killed {
			n++
			by = strings.Join(r.Tests, ", ")
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %.0f |\n", all[i].Name, all[i].What, by, r.Package, r.Tier, r.Seconds)
	}
	summary := fmt.Sprintf("%d of %d killed\n", n, len(results))
	if err := os.WriteFile(path, []byte(table.String()+"\n"+summary), 0o600); err != nil {
		return err
	}
	_, err := io.WriteString(out, summary)
	if err == nil && n < len(results) {
		err = errSurvived
	}
	return err
}
