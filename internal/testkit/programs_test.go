// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrograms checks where Repository, Bin and Program look.
func TestPrograms(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("from the root and from another module of the repository", func(t *testing.T) {
		for _, from := range []string{".", "bench", filepath.Join("test", "kubelet", "devicemanager")} {
			t.Chdir(filepath.Join(root, from))
			if got := Repository(); got != root {
				t.Errorf("from %s: the repository is %q, want %q", from, got, root)
			}
			if got, want := Bin(), filepath.Join(root, "bin"); got != want {
				t.Errorf("from %s: the programs are in %q, want %q", from, got, want)
			}
		}
	})
	t.Run("without a repository", func(t *testing.T) {
		t.Chdir(t.TempDir())
		if got := Repository(); got != "" {
			t.Errorf("the repository is %q, want none", got)
		}
	})
	t.Run("those of a folder that is named are taken as they are", func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv(binVariable, dir)
		want := filepath.Join(dir, "nvtopo-nothing") // no such program can be built
		if got := Program(t, "nvtopo-nothing"); got != want {
			t.Errorf("Program: %q, want %q", got, want)
		}
		if got := OwnProgram(t, "nvtopo-nothing"); got != want {
			t.Errorf("OwnProgram: %q, want %q", got, want)
		}
	})
	t.Run("a program of the test's own is built", func(t *testing.T) {
		path := OwnProgram(t, "nvtopo")
		if dir := filepath.Dir(path); dir == Bin() {
			t.Errorf("it is in %s, which others build into", dir)
		}
		if out, err := exec.CommandContext(t.Context(), path, "version").CombinedOutput(); err != nil {
			t.Errorf("%s version: %v\n%s", path, err, out)
		}
	})
	t.Run("what cannot be built is told of with the compiler's words", func(t *testing.T) {
		message := judge(t, func(tb testing.TB) { tb.Helper(); OwnProgram(tb, "nvtopo-nothing") })
		if want := "build nvtopo-nothing: exit status 1\n"; !strings.Contains(message, want) {
			t.Errorf("message %q, want %q", message, want)
		}
		if _, err := os.Stat(filepath.Join(Bin(), "nvtopo-nothing")); err == nil {
			t.Error("something was built")
		}
	})
}
