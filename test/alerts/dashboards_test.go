// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
)

// external are the prefixes of other programs' metrics that dashboards may use: dcgm-exporter's and
// node-exporter's.
var external = []string{"DCGM_FI_", "node_"}

// queries returns the expressions of a dashboard.
func queries(t *testing.T, path string) []string {
	t.Helper()
	text, err := manifests.Dashboards.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var found []string
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			if target.Expr == "" {
				t.Errorf("%s: panel %q has a target without a query", path, p.Title)
			}
			found = append(found, target.Expr)
		}
	}
	if len(found) < 6 {
		t.Errorf("%s has only %d queries", path, len(found))
	}
	return found
}

func boards(t *testing.T) []string {
	t.Helper()
	paths, err := fs.Glob(manifests.Dashboards, "dashboards/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	return paths
}

// TestDashboardMetrics checks that the metrics of dashboards exist. Ours are in the sources or recorded
// by a rule; the page for operators names those of other programs.
func TestDashboardMetrics(t *testing.T) {
	ours := literals(t, filepath.Join(testkit.Repository(), "pkg"))
	page, err := os.ReadFile(filepath.Join(testkit.Repository(), "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded []string
	for _, r := range ruleSets["placement"].rules(t) {
		recorded = append(recorded, r.Record)
	}
	for _, path := range boards(t) {
		for _, expr := range queries(t, path) {
			for _, name := range metricsOf(expr) {
				theirs := slices.ContainsFunc(external, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
				switch {
				case theirs && !strings.Contains(string(page), name):
					t.Errorf("%s: docs/monitoring.md does not say where %s comes from", path, name)
				case !theirs && !slices.Contains(recorded, name) && !made(withoutSuffix(name), ours):
					t.Errorf("%s: nobody has the metric %s", path, name)
				}
			}
		}
	}
}

// TestDashboardQueries checks that promtool can parse the queries of dashboards, written as recording
// rules.
func TestDashboardQueries(t *testing.T) {
	type recording struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	type group struct {
		Name  string      `json:"name"`
		Rules []recording `json:"rules"`
	}
	var file struct {
		Groups []group `json:"groups"`
	}
	for _, path := range boards(t) {
		g := group{Name: path}
		for i, expr := range queries(t, path) {
			g.Rules = append(g.Rules, recording{fmt.Sprintf("query_%d", i), strings.ReplaceAll(expr, "$__rate_interval", "5m")})
		}
		file.Groups = append(file.Groups, g)
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, text)
	out, err := exec.CommandContext(t.Context(), filepath.Join(testkit.Bin(), "promtool"), "check", "rules", path).CombinedOutput()
	if err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
