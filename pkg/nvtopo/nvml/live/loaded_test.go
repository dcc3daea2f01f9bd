// SPDX-License-Identifier: Apache-2.0

package live

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
)

// compiled is a shared library of this C source. A process should initialise one only:
// go-nvml loads it for all, and each symbol is bound to the first that has it.
func compiled(t *testing.T, source string) (path string) {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "nvml.c"), filepath.Join(dir, "libnvidia-ml.so.1")
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if msg, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", out, in).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, msg)
	}
	return out
}

// TestErrorText: an error keeps its text when the library changes its own.
func TestErrorText(t *testing.T) {
	lib := New(compiled(t, `
		#include <stdio.h>
		int nvmlInit_v2(void) { static int last = 900; return ++last; }
		int nvmlShutdown(void) { return 0; }
		const char *nvmlErrorString(int ret) {
			static char text[32];
			snprintf(text, sizeof text, "failure %d", ret);
			return text;
		}`))
	first := lib.Init()
	second := lib.Init()
	if got, want := first.Error(), "nvmlInit: failure 901"; got != want {
		t.Errorf("the first error is %q after the second, want %q", got, want)
	}
	if got, want := second.Error(), "nvmlInit: failure 902"; got != want {
		t.Errorf("the second error is %q, want %q", got, want)
	}
}

// TestUnusableLibrary: a library without the calls to begin with is no driver.
func TestUnusableLibrary(t *testing.T) {
	for name, source := range map[string]string{
		"it is another library":        `int answer(void) { return 42; }`,
		"it cannot be shut down":       `int nvmlInit(void) { return 0; } const char *nvmlErrorString(int r) { return ""; }`,
		"it has no words for an error": `int nvmlInit_v2(void) { return 0; } int nvmlShutdown(void) { return 0; }`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := New(compiled(t, source)).Init(); !nvml.IsNoDriver(err) {
				t.Errorf("error %v, want one of kind no driver", err)
			}
		})
	}
}
