// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCheckConfig: the scheduler's program is run once for each configuration of a file, under the file's
// name, and its last line is the error.
func TestCheckConfig(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	script := `#!/bin/sh
text=$(cat)
case "$text" in *bad*) echo "a log line" >&2; echo "nvtopo-scheduler: ${2#--check-config-name=}: bad: there is no such field" >&2; exit 1;; esac
echo "$*: $text"
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	const kind = "kind: KubeSchedulerConfiguration"
	configMap := "kind: ConfigMap\ndata:\n  b.yaml: '" + kind + "'\n  a.yaml: 'kind: KubeSchedulerConfiguration'\n  policy.yaml: 'kind: Policy'\n"
	for name, tc := range map[string]struct {
		input string
		args  []string
		want  string // the answer, or the error
		code  int
	}{
		"a file":                          {kind, []string{"-f", "-"}, "--check-config=table --check-config-name=standard input --config=/dev/stdin: " + kind + "\n", ExitOK},
		"as YAML, with feature gates":     {kind, []string{"-f", "-", "-o", "yaml", "--feature-gates", "A=true"}, "--check-config=yaml --check-config-name=standard input --config=/dev/stdin --feature-gates=A=true: " + kind + "\n", ExitOK},
		"a ConfigMap":                     {configMap, []string{"-f", "-", "-o", "yaml"}, "--check-config=yaml --check-config-name=standard input: data[a.yaml] --config=/dev/stdin: " + kind + "\n---\n--check-config=yaml --check-config-name=standard input: data[b.yaml] --config=/dev/stdin: " + kind + "\n", ExitOK},
		"a ConfigMap of something else":   {"kind: ConfigMap\ndata: {a: 'kind: Policy'}\n", []string{"-f", "-"}, "standard input: data: want a KubeSchedulerConfiguration in one of the values of the ConfigMap, and there are 1", ExitInput},
		"a configuration that is refused": {"bad: 1", []string{"-f", "-"}, "standard input: bad: there is no such field", ExitInput},
		"a value that is refused":         {"kind: ConfigMap\ndata: {a.yaml: 'bad: 1'}\n", []string{"-f", "-"}, "standard input: data[a.yaml]: bad: there is no such field", ExitInput},
		"a text that is no YAML":          {"[ bad", []string{"-f", "-"}, "standard input: bad: there is no such field", ExitInput},
		"no file":                         {"", nil, "--file: the configuration to check is missing", ExitUsage},
		"a form that is none":             {kind, []string{"-f", "-", "-o", "svg"}, `--output "svg": want table, json or yaml`, ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, tc.input, append([]string{"check-config", "--program", program}, tc.args...)...)
			if err != nil {
				out = err.Error()
			}
			if diff := cmp.Diff(tc.want, out); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if code := ExitCode(err); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
		})
	}
	if _, err := run(t, kind, "check-config", "-f", "-", "--program", "/nowhere/program"); err == nil || !strings.Contains(err.Error(), "--program /nowhere/program: ") {
		t.Errorf("without the program: %v, want it to be named", err)
	}
}
