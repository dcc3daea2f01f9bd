// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// krewPlugin is Krew's Plugin, v1alpha2, as far as a plugin must or may say it.
type krewPlugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Caveats          string         `json:"caveats"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	URI      string `json:"uri"`
	SHA256   string `json:"sha256"`
	Bin      string `json:"bin"`
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
}

// krew runs the script on two programs, as release-check leaves them, and returns their folder
// and the manifest.
func krew(t *testing.T, version string) (out string, p krewPlugin) {
	t.Helper()
	out = t.TempDir()
	for _, name := range []string{"nvtopo-linux-amd64", "nvtopo-linux-arm64", "nvtopo-linux-amd64.cdx.json", "nvtopo-scheduler-linux-amd64"} {
		if err := os.WriteFile(filepath.Join(out, name), []byte("program "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := exec.CommandContext(t.Context(), "../scripts/krew.sh", out, version).CombinedOutput(); err != nil {
		t.Fatalf("krew.sh: %v\n%s", err, text)
	}
	data, err := os.ReadFile(filepath.Join(out, "nvtopo.krew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &p); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return out, p
}

func TestKrewPlugin(t *testing.T) {
	out, p := krew(t, "v0.3.1")
	got := map[string]string{
		"apiVersion": p.APIVersion, "kind": p.Kind, "name": p.Metadata.Name, "version": p.Spec.Version,
	}
	want := map[string]string{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "name": "nvtopo", "version": "v0.3.1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want,+got)\n%s", diff)
	}
	// Krew's guide: at most 50 characters, no full stop.
	if s := p.Spec.ShortDescription; s == "" || len(s) > 50 || strings.HasSuffix(s, ".") {
		t.Errorf("shortDescription %q", s)
	}
	if p.Spec.Homepage == "" || p.Spec.Description == "" || !strings.Contains(p.Spec.Caveats, "$(command -v kubectl-nvtopo)") {
		t.Errorf("homepage %q, description %q, caveats %q", p.Spec.Homepage, p.Spec.Description, p.Spec.Caveats)
	}
	var archs []string
	for _, f := range p.Spec.Platforms {
		arch := f.Selector.MatchLabels["arch"]
		archs = append(archs, arch)
		archive := "kubectl-nvtopo-linux-" + arch + ".tar.gz"
		if want := "https://github.com/nvtopo/nvtopo/releases/download/v0.3.1/" + archive; f.URI != want || f.Selector.MatchLabels["os"] != "linux" {
			t.Errorf("%s: uri %s for %v, want %s", arch, f.URI, f.Selector.MatchLabels, want)
		}
		data, err := os.ReadFile(filepath.Join(out, archive))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(data); f.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: sha256 %s, is %x", archive, f.SHA256, sum)
		}
		files := unpack(t, data)
		if string(files[f.Bin]) != "program nvtopo-linux-"+arch || len(files["LICENSE"]) == 0 || len(files) != 2 {
			t.Errorf("%s: program %q of %d files, want that of the platform and LICENSE", archive, files[f.Bin], len(files))
		}
	}
	if diff := cmp.Diff(released(t), archs); diff != "" {
		t.Errorf("architectures (-released,+in the manifest)\n%s", diff)
	}
	_, again := krew(t, "v0.3.1")
	if diff := cmp.Diff(p, again); diff != "" {
		t.Errorf("made again it differs (-first,+second)\n%s", diff)
	}
}

// released are the architectures that release-check builds, on a machine that is no arm64.
func released(t *testing.T) []string {
	t.Helper()
	script, err := os.ReadFile("../scripts/release-check.sh")
	if err != nil {
		t.Fatal(err)
	}
	archs := []string{"amd64"} // of the host
	for _, m := range regexp.MustCompile(`(?m)^\s*check ([a-z0-9]+) `).FindAllStringSubmatch(string(script), -1) {
		archs = append(archs, m[1])
	}
	return archs
}

// TestKrewVersionPin: Krew takes no other version.
func TestKrewVersionPin(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3-rc.1": "v1.2.3-rc.1", "v0.2.0-3-gabcdef1": "v0.2.0-3-gabcdef1", "951be6c": "v0.0.0-951be6c",
	} {
		if _, p := krew(t, version); p.Spec.Version != want {
			t.Errorf("of %s: version %s, want %s", version, p.Spec.Version, want)
		}
	}
	text, err := exec.CommandContext(t.Context(), "../scripts/krew.sh", t.TempDir(), "v1.0.0").CombinedOutput()
	if err == nil || !strings.Contains(string(text), "no nvtopo-linux-ARCH") {
		t.Errorf("of no program: error %v, %q", err, text)
	}
}

func unpack(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if h.Name == "kubectl-nvtopo" && h.Mode&0o111 == 0 {
			t.Errorf("%s has the mode %o", h.Name, h.Mode)
		}
	}
}
