// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/internal/testrig"
	"github.com/nvtopo/nvtopo/manifests"
)

const (
	folder  = "pools/alerts" // in manifests.Pools
	runbook = "https://github.com/nvtopo/nvtopo/blob/main/docs/pools.md#"
)

// ruleFile is the part of a PrometheusRule that is looked at.
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
	promtool := filepath.Join(testrig.Bin(), "promtool")
	if _, err := os.Stat(promtool); err != nil {
		t.Fatalf("promtool is not built (make bin/promtool): %v", err)
	}
	var all struct{ Spec any }
	if err := yaml.Unmarshal(source(t, "pools.yaml"), &all); err != nil {
		t.Fatal(err)
	}
	rules, err := yaml.Marshal(all.Spec)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), rules)
	for _, name := range testFiles(t) {
		write(t, filepath.Join(dir, name), source(t, name))
	}
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"},
		append([]string{"test", "rules"}, testFiles(t)...),
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

// TestEveryAlertFiresInATest: none can be left out of the tests by mistake.
func TestEveryAlertFiresInATest(t *testing.T) {
	fires := map[string]bool{}
	for _, name := range testFiles(t) {
		var file struct {
			Tests []struct {
				AlertRuleTest []struct {
					Alertname string `json:"alertname"`
					ExpAlerts []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			}
		}
		if err := yaml.Unmarshal(source(t, name), &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, group := range file.Tests {
			for _, one := range group.AlertRuleTest {
				fires[one.Alertname] = fires[one.Alertname] || len(one.ExpAlerts) > 0
			}
		}
	}
	for _, r := range rules(t) {
		if r.Alert != "" && !fires[r.Alert] {
			t.Errorf("no test has %s fire", r.Alert)
		}
	}
}

// TestEveryAlertSaysWhatToDo: that the headings of the runbook are there is a test of docs.
func TestEveryAlertSaysWhatToDo(t *testing.T) {
	alerts := 0
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts++
		if severity := r.Labels["severity"]; !slices.Contains([]string{"info", "warning"}, severity) {
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
	if alerts < 8 {
		t.Errorf("only %d alerts", alerts)
	}
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file ruleFile
	if err := yaml.Unmarshal(source(t, "pools.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, group := range file.Spec.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func testFiles(t *testing.T) []string {
	t.Helper()
	paths, err := fs.Glob(manifests.Pools, folder+"/*_test.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no tests in %s: %v", folder, err)
	}
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

func source(t *testing.T, name string) []byte {
	t.Helper()
	text, err := manifests.Pools.ReadFile(folder + "/" + name)
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
