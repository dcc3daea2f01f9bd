// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/manifests"
)

// TestCheckConfig runs the scheduler's check of configurations, and starts it with those that are
// refused: both must end with the same message.
func TestCheckConfig(t *testing.T) {
	program := testkit.Program(t, "nvtopo-scheduler")
	shipped, err := manifests.FS.ReadFile(manifests.SchedulerConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := transcript.New("check-config", "--program", program)
	s.Hide(regexp.QuoteMeta(dir)+"/", "")
	s.Say("Would the scheduler start with the shipped configuration, and what would it do?")
	s.Run(t, "check-config", "-f", file("scheduler-config.yaml", string(shipped)))
	s.Say("Three that it would refuse: a field, a value, a plugin.")
	for _, bad := range []struct{ name, old, text string }{
		{"field.yaml", "annotationWrite:", "annotationsWrite:"},
		{"value.yaml", "annotationWrite: PreBind", "annotationWrite: Never"},
		{"plugin.yaml", "{name: ImageLocality,", "{name: Tetris,"},
	} {
		path := file(bad.name, strings.Replace(string(shipped), bad.old, bad.text, 1))
		s.Run(t, "check-config", "-f", path)
		checked, started := lastLine(t, program, "--check-config", "--config="+path), lastLine(t, program, "--config="+path, "--secure-port=0")
		if prefix := "nvtopo-scheduler: " + path + ": profiles[0]."; checked != started || !strings.HasPrefix(started, prefix) {
			t.Errorf("%s: checked %q, started %q, want both to be one line that begins with %q", bad.name, checked, started, prefix)
		}
	}
	if got := lastLine(t, program, "--no-such-flag"); got != "nvtopo-scheduler: unknown flag: --no-such-flag; see 'nvtopo-scheduler --help'" {
		t.Errorf("an unknown flag: %q", got)
	}
	s.Compare(t)
}

// lastLine runs a program that must fail, and returns its last line of output.
func lastLine(t *testing.T, program string, args ...string) string {
	t.Helper()
	var words bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stderr = &words
	if _, ended := errors.AsType[*exec.ExitError](cmd.Run()); !ended {
		t.Fatalf("%s does not end with an error: %s", args, words.String())
	}
	lines := strings.Split(strings.TrimSpace(words.String()), "\n")
	return lines[len(lines)-1]
}
