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

// sharing are the modules beside the product's that link much of what the product links.
// What has one version in all of them is compiled once; one module of another version, such
// as golang.org/x/sys, has all above it compiled again, which is minutes.
// tools/containerd, tools/kubelet-1.37 and tools/nvidia-device-plugin are left as they are released.
var sharing = map[string]struct{ except []string }{
	"bench":          {except: []string{"gonum.org/v1/gonum"}}, // the product links little of it
	"test/kubelet":   {},
	"tools":          {},
	"tools/helm":     {},
	"tools/kubelet":  {},
	"tools/kwok":     {},
	"tools/promtool": {},
}

// TestModuleVersions: modules share versions.
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

// TestToolBuildFlags: tools share what is compiled. -trimpath changes what the compiler writes, so
// that a tool built with it has even the standard library compiled again.
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

// versions are those of the modules that a go.mod names: all that its module compiles.
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
