// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/nvtopo/nvtopo"
	// binVariable names a folder whose programs are used without a build.
	binVariable = "NVTOPO_BIN"
)

// built holds the names of the programs that this process has built. Tests that run in parallel wait for
// the one that builds.
var built = struct {
	sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// Repository returns the folder of the project's own go.mod, above the folder in which the process was
// started; empty if there is none.
func Repository() string {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		text, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
		if strings.HasPrefix(string(text), "module "+module+"\n") {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return ""
}

// Bin returns the folder of all programs: the one that NVTOPO_BIN names, or the repository's bin.
func Bin() string {
	dir := os.Getenv(binVariable)
	if dir == "" {
		dir = filepath.Join(Repository(), "bin")
	}
	if path, err := filepath.Abs(dir); err == nil {
		return path
	}
	return dir
}

// Program returns the path of one of the project's programs, such as nvtopo-scheduler. It is built first,
// so that no test runs an outdated one, unless NVTOPO_BIN is set.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(Bin(), name)
	if os.Getenv(binVariable) != "" {
		return path
	}
	built.Lock()
	defer built.Unlock()
	if !built.names[name] {
		build(tb, path, ".", command(name))
		built.names[name] = true
	}
	return path
}

// OwnProgram is Program in a folder of the test's own: a concurrent build of bin does not change the
// program that the test starts next.
func OwnProgram(tb testing.TB, name string) string {
	tb.Helper()
	if os.Getenv(binVariable) != "" {
		return filepath.Join(Bin(), name)
	}
	path := filepath.Join(tb.TempDir(), name)
	build(tb, path, ".", command(name))
	return path
}

// Kwok returns the path of kwok, and builds it if it is missing.
func Kwok(tb testing.TB) string {
	tb.Helper()
	built.Lock()
	defer built.Unlock()
	path := filepath.Join(Bin(), "kwok")
	if _, err := os.Stat(path); err != nil {
		build(tb, path, filepath.Join("tools", "kwok"), "sigs.k8s.io/kwok/cmd/kwok")
	}
	return path
}

// Kueue returns the paths of Kueue and of its config folder. The test is skipped if they are missing:
// compiling Kueue takes minutes, so only make bin/kueue does it.
func Kueue(tb testing.TB) (binary, config string) {
	tb.Helper()
	binary, config = filepath.Join(Bin(), "kueue"), filepath.Join(Bin(), "kueue-config")
	for _, path := range []string{binary, config} {
		if _, err := os.Stat(path); err != nil {
			tb.Skipf("Kueue is not built (make bin/kueue): %v", err)
		}
	}
	return binary, config
}

// JobSet returns the paths of JobSet's controller and of JobSet's config folder. The test is skipped if
// they are missing, as with Kueue.
func JobSet(tb testing.TB) (binary, config string) {
	tb.Helper()
	binary, config = filepath.Join(Bin(), "jobset"), filepath.Join(Bin(), "jobset-config")
	for _, path := range []string{binary, config} {
		if _, err := os.Stat(path); err != nil {
			tb.Skipf("JobSet's controller is not built (make bin/jobset): %v", err)
		}
	}
	return binary, config
}

// command returns the package of a program.
func command(name string) string {
	return module + "/cmd/" + strings.TrimPrefix(name, "nvtopo-")
}

// build builds a package of the module in a folder of the repository.
func build(tb testing.TB, path, folder, pkg string) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-o", path, pkg)
	cmd.Dir = filepath.Join(Repository(), folder)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		tb.Fatalf("build %s: %v\n%s", filepath.Base(path), err, out.String())
	}
}
