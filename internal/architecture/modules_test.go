// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sharing are the modules beside the product's that link much of what the product links. A dependency
// that has one version in all of them is compiled once; one module with another version, such as of
// golang.org/x/sys, has all packages above it compiled again, which takes minutes. tools/containerd,
// tools/kubelet-1.37 and tools/nvidia-device-plugin stay as they are released.
var sharing = map[string]struct{ except []string }{
	"bench":          {except: []string{"gonum.org/v1/gonum"}}, // the product links little of it
	"test/kubelet":   {},
	"tools":          {},
	"tools/helm":     {},
	"tools/kubelet":  {},
	"tools/kwok":     {},
	"tools/promtool": {},
}

// TestModuleVersions fails if a module has another version of a dependency than the product.
func TestModuleVersions(t *testing.T) {
	product := versions(t, ".")
	for _, dir := range slices.Sorted(maps.Keys(sharing)) {
		theirs := versions(t, dir)
		for _, path := range slices.Sorted(maps.Keys(theirs)) {
			want, shared := product[path]
			excepted := slices.Contains(sharing[dir].except, path)
			switch got := theirs[path]; {
			case shared && got != want && !excepted:
				t.Errorf("%s/go.mod has %s %s, the product %s: a require or replace of the product's version lets both share what is compiled", dir, path, got, want)
			case excepted && (!shared || got == want):
				t.Errorf("%s/go.mod: %s needs no exception", dir, path)
			}
		}
	}
}

// TestToolBuildFlags fails if a tool is built with -trimpath. The flag changes the compiler's output, so
// that even the standard library would be compiled again for such a tool.
func TestToolBuildFlags(t *testing.T) {
	files, err := filepath.Glob("../../mk/*.mk")
	if err != nil {
		t.Fatal(err)
	}
	builds := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if !strings.Contains(line, "$(BUILD) ") {
				continue
			}
			builds++
			if strings.Contains(line, "-trimpath") {
				t.Errorf("mk/%s:%d has -trimpath: %s", filepath.Base(file), i+1, strings.TrimSpace(line))
			}
		}
	}
	if builds == 0 {
		t.Error("no file of mk/ builds with $(BUILD)")
	}
}

// versions returns the versions of the modules in a go.mod: all that its module compiles.
func versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = filepath.Join("..", "..", dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit in %s: %v", dir, err)
	}
	type module struct{ Path, Version string }
	var file struct {
		Require []module
		Replace []struct{ Old, New module }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatalf("%s/go.mod: %v", dir, err)
	}
	found := map[string]string{}
	for _, m := range file.Require {
		found[m.Path] = m.Version
	}
	for _, r := range file.Replace {
		if _, used := found[r.Old.Path]; used {
			found[r.Old.Path] = r.New.Version
		}
	}
	return found
}
