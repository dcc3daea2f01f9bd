// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
)

const docs = "https://github.com/nvtopo/nvtopo/blob/main/docs/"

// ruleSet is a PrometheusRule with promtool's tests beside it.
type ruleSet struct {
	files   embed.FS
	folder  string
	file    string
	runbook string // the runbook page, and a #
	alerts  int    // at least
}

var ruleSets = map[string]ruleSet{
	"placement": {manifests.Alerts, "alerts", "placement.yaml", docs + "monitoring.md#", 10},
	"pools":     {manifests.Pools, "pools/alerts", "pools.yaml", docs + "pools.md#", 8},
}

// ruleFile is the part of a PrometheusRule that tests read.
type ruleFile struct {
	Spec struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
}

type rule struct {
	Alert, Record, Expr string
	Labels, Annotations map[string]string
}

// TestPromtool checks the rules, and runs the tests beside them.
func TestPromtool(t *testing.T) {
	promtool := filepath.Join(testkit.Bin(), "promtool")
	if _, err := os.Stat(promtool); err != nil {
		t.Fatalf("promtool is not built (make bin/promtool): %v", err)
	}
	for name, set := range ruleSets {
		t.Run(name, func(t *testing.T) { set.promtool(t, promtool) })
	}
}

func (s ruleSet) promtool(t *testing.T, promtool string) {
	t.Helper()
	var all struct{ Spec any }
	if err := yaml.Unmarshal(s.source(t, s.file), &all); err != nil {
		t.Fatal(err)
	}
	rules, err := yaml.Marshal(all.Spec)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), rules)
	for _, name := range s.testFiles(t) {
		write(t, filepath.Join(dir, name), s.source(t, name))
	}
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"},
		append([]string{"test", "rules"}, s.testFiles(t)...),
	} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
			continue
		}
		t.Logf("promtool %s: %s", strings.Join(args, " "), strings.Join(strings.Fields(string(out)), " "))
	}
}

// TestGroupOrder checks that test files set the order of groups. Without it promtool evaluates the groups
// in map order, and an alert may come before the recording of its inputs.
func TestGroupOrder(t *testing.T) {
	for _, set := range ruleSets {
		var want []string
		for _, g := range set.parsed(t).Spec.Groups {
			want = append(want, g.Name)
		}
		for _, name := range set.testFiles(t) {
			var file struct {
				Order []string `json:"group_eval_order"`
			}
			if err := yaml.Unmarshal(set.source(t, name), &file); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, file.Order); diff != "" {
				t.Errorf("%s: group_eval_order (-groups of %s +got)\n%s", name, set.file, diff)
			}
		}
	}
}

// TestAlertCoverage checks that every alert fires in a test.
func TestAlertCoverage(t *testing.T) {
	for name, set := range ruleSets {
		t.Run(name, func(t *testing.T) {
			fires := set.firing(t)
			for _, r := range set.rules(t) {
				if r.Alert != "" && !fires[r.Alert] {
					t.Errorf("no test has %s fire", r.Alert)
				}
			}
		})
	}
}

// firing returns the alerts that fire in some test.
func (s ruleSet) firing(t *testing.T) map[string]bool {
	t.Helper()
	fires := map[string]bool{}
	for _, name := range s.testFiles(t) {
		var file struct {
			Tests []struct {
				AlertRuleTest []struct {
					Alertname string `json:"alertname"`
					ExpAlerts []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			}
		}
		if err := yaml.Unmarshal(s.source(t, name), &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, group := range file.Tests {
			for _, one := range group.AlertRuleTest {
				fires[one.Alertname] = fires[one.Alertname] || len(one.ExpAlerts) > 0
			}
		}
	}
	return fires
}

// TestAlertActions checks that every alert states an action. Tests of docs check that the runbook has the
// headings.
func TestAlertActions(t *testing.T) {
	for name, set := range ruleSets {
		t.Run(name, func(t *testing.T) {
			alerts := 0
			for _, r := range set.rules(t) {
				if r.Alert != "" {
					alerts++
					r.saysWhatToDo(t, set.runbook)
				}
			}
			if alerts < set.alerts {
				t.Errorf("only %d alerts", alerts)
			}
		})
	}
}

func (r *rule) saysWhatToDo(t *testing.T, runbook string) {
	t.Helper()
	if severity := r.Labels["severity"]; !slices.Contains([]string{"info", "warning", "critical"}, severity) {
		t.Errorf("%s: severity %q", r.Alert, severity)
	}
	for _, key := range []string{"summary", "description"} {
		if r.Annotations[key] == "" {
			t.Errorf("%s has no %s", r.Alert, key)
		}
	}
	if got, want := r.Annotations["runbook_url"], runbook+strings.ToLower(r.Alert); got != want {
		t.Errorf("%s: runbook_url %q, want %q", r.Alert, got, want)
	}
}

func (s ruleSet) rules(t *testing.T) []rule {
	t.Helper()
	var all []rule
	for _, group := range s.parsed(t).Spec.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func (s ruleSet) parsed(t *testing.T) (file ruleFile) {
	t.Helper()
	if err := yaml.Unmarshal(s.source(t, s.file), &file); err != nil {
		t.Fatalf("%s: %v", s.file, err)
	}
	return file
}

func (s ruleSet) testFiles(t *testing.T) []string {
	t.Helper()
	paths, err := fs.Glob(s.files, s.folder+"/*_test.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no tests in %s: %v", s.folder, err)
	}
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

func (s ruleSet) source(t *testing.T, name string) []byte {
	t.Helper()
	text, err := s.files.ReadFile(s.folder + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
