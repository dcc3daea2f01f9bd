// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stubs stand in for what takes minutes: the compiler puts the pages of a clone, if there are any,
// into a script that says its version.
var stubs = map[string]string{
	"scripts/build.sh": `#!/bin/bash
while [ $# -gt 0 ]; do case $1 in -C) clone=$2;; -o) out=$2;; esac; shift; done
{ echo "#!/bin/sh"; echo "echo v0.1.0"; [ -n "$FORGET" ] || cat "$clone"/ui/dist/index.html; } >"$out" 2>/dev/null
chmod +x "$out"; echo compiled`,
	"scripts/ui-tools.sh": "#!/bin/sh\n[ -z \"$OFFLINE\" ]",
	"bin/npm": `#!/bin/sh
mkdir -p dist/assets
echo code >dist/assets/index-abc123.js
echo '# <script src="/assets/index-abc123.js">' >dist/index.html`,
	"bin/sbom":     "#!/bin/sh\ntrue",
	"CHANGELOG.md": "# Changelog\n",
}

// checkout is a repository with the scripts of a release, where everything else is a stub.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := maps.Clone(stubs)
	for _, name := range []string{"scripts/release-check.sh", "scripts/pages.sh", "scripts/krew.sh", "scripts/images.sh", "LICENSE"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	files["ui/package.json"] = "{}"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false", "commit", "--quiet", "-m", "all"}} {
		git := exec.CommandContext(t.Context(), "git", args...)
		git.Dir = dir
		if text, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, text)
		}
	}
	return dir
}

// TestReleaseNeedsPages: nothing is released without pages unless somebody says so.
func TestReleaseNeedsPages(t *testing.T) {
	for name, tc := range map[string]struct {
		command  []string
		env      string
		wantFail bool
		want     string
		wantNot  string
	}{
		"a release": {
			command: []string{"scripts/release-check.sh", "out", "nvtopo"}, want: "v0.1.0: reproducible", wantNot: "WITHOUT",
		},
		"a release whose pages cannot be built compiles nothing": {
			command: []string{"scripts/release-check.sh", "out", "nvtopo"}, env: "OFFLINE=1",
			wantFail: true, want: "would be released without the pages", wantNot: "compiled",
		},
		"a release whose program was built without them": {
			command: []string{"scripts/release-check.sh", "out", "nvtopo"}, env: "FORGET=1",
			wantFail: true, want: "nvtopo has no index-abc123.js",
		},
		"a release that is to have none": {
			command: []string{"scripts/release-check.sh", "out", "nvtopo"}, env: "SKIP_UI=1", want: "nvtopo was built WITHOUT the pages of the web view",
		},
		"a release of another program needs none": {
			command: []string{"scripts/release-check.sh", "out", "nvtopo-scheduler"}, env: "OFFLINE=1", want: "v0.1.0: reproducible", wantNot: "WITHOUT",
		},
		"images of a checkout without them": {
			command: []string{"scripts/images.sh", "out"}, wantFail: true, want: "nvtopo would have no pages", wantNot: "compiled",
		},
		"images that are to have none": {
			command: []string{"scripts/images.sh", "out"}, env: "SKIP_UI=1", wantFail: true, want: "compiled", wantNot: "would have no pages", // no Go module here
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := checkout(t)
			cmd := exec.CommandContext(t.Context(), tc.command[0], tc.command[1:]...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "VERSION=v0.1.0", "LDFLAGS=x", "SBOM="+filepath.Join(dir, "bin", "sbom"),
				"ARCHS=amd64", "TAG=t", "SKIP_UI=", "OFFLINE=", "FORGET=", tc.env)
			out, err := cmd.CombinedOutput()
			if (err != nil) != tc.wantFail || !strings.Contains(string(out), tc.want) || tc.wantNot != "" && strings.Contains(string(out), tc.wantNot) {
				t.Errorf("%v, want failure: %t, %q and no %q:\n%s", err, tc.wantFail, tc.want, tc.wantNot, out)
			}
		})
	}
}
