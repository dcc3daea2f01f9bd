// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/spdx/tools-golang/json"
	"go.yaml.in/yaml/v3"
)

// small is the source of a program, dynamically the source of one that needs a C library.
const (
	small       = "package main\n\nfunc main() { println(\"small\") }\n"
	dynamically = "package main\n\nimport \"C\"\n\nfunc main() { println(\"small\") }\n"
)

// compiled builds a program in a folder of its own, with the flags of scripts/images.sh.
func compiled(t *testing.T, source, arch string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.org/small\n\ngo 1.26\n", "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cgo := "0"
	if source == dynamically {
		cgo = "1"
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", "small", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED="+cgo, "GOFLAGS=")
	if arch != runtime.GOARCH && cgo == "1" {
		cmd.Env = append(cmd.Env, "CC="+crossCompiler)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	binary, err := os.ReadFile(filepath.Join(dir, "small"))
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// made writes images of all programs into a folder; each contains binaries[arch].
func made(t *testing.T, binaries map[string][]byte) *options {
	t.Helper()
	o := &options{
		programs: t.TempDir(), out: filepath.Join(t.TempDir(), "out"), libraries: "/", tag: "v1",
		version: "v1.2.3", revision: "0123abc", at: time.Unix(1_700_000_000, 0).UTC(),
	}
	for arch, binary := range binaries {
		for _, p := range programs() {
			file := filepath.Join(o.programs, "linux-"+arch, p.name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, binary, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := run(o, io.Discard); err != nil {
		t.Fatal(err)
	}
	return o
}

// images reads a layout's images, by architecture, and its index.
func images(t *testing.T, o *options, name string) (map[string]v1.Image, v1.ImageIndex) {
	t.Helper()
	top, err := layout.ImageIndexFromPath(filepath.Join(o.out, name))
	if err != nil {
		t.Fatal(err)
	}
	first := manifest(t, top).Manifests[0]
	index, err := top.ImageIndex(first.Digest)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"org.opencontainers.image.ref.name": o.tag, "io.containerd.image.name": "docker.io/library/" + name + ":v1"}
	if diff := cmp.Diff(want, first.Annotations); diff != "" {
		t.Errorf("names of %s (-want +got):\n%s", name, diff)
	}
	out := map[string]v1.Image{}
	for _, d := range manifest(t, index).Manifests {
		if out[d.Platform.Architecture], err = index.Image(d.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return out, index
}

func manifest(t *testing.T, i v1.ImageIndex) *v1.IndexManifest {
	t.Helper()
	m, err := i.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// packed lists the files of an image's layers.
func packed(t *testing.T, img v1.Image) map[string]*tar.Header {
	t.Helper()
	out := map[string]*tar.Header{}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for files := tar.NewReader(r); ; {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			out[h.Name] = h
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestImages checks the files and the users of the images, and that they conform to the OCI's
// specifications.
func TestImages(t *testing.T) {
	o := made(t, map[string][]byte{"amd64": compiled(t, small, "amd64"), "arm64": compiled(t, small, "arm64")})
	for _, p := range programs() {
		all, index := images(t, o, p.name)
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		if len(all) != 2 {
			t.Errorf("%s is of %d architectures, want 2", p.name, len(all))
		}
		for arch, img := range all {
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if config.Architecture != arch || config.OS != "linux" || !config.Created.Equal(o.at) {
				t.Errorf("%s for %s: %s %s of %v", p.name, arch, config.OS, config.Architecture, config.Created)
			}
			c := config.Config
			if c.User != p.user || !slices.Equal(c.Entrypoint, []string{"/" + p.name}) || c.Labels["org.opencontainers.image.version"] != "v1.2.3" {
				t.Errorf("%s for %s runs %v as %s, version %s", p.name, arch, c.Entrypoint, c.User, c.Labels["org.opencontainers.image.version"])
			}
			var names []string
			for name, h := range packed(t, img) {
				names = append(names, name)
				if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 && h.Typeflag != tar.TypeSymlink || !h.ModTime.Equal(o.at) {
					t.Errorf("%s: %s is of %d:%d with mode %o, of %v", p.name, name, h.Uid, h.Gid, h.Mode, h.ModTime)
				}
			}
			slices.Sort(names)
			if want := []string{"etc/", "etc/group", "etc/passwd", p.name}; !slices.Equal(names, want) {
				t.Errorf("%s has %q, want %q", p.name, names, want)
			}
		}
	}
}

// TestReproducibility checks that images do not depend on the place and time of the build.
func TestReproducibility(t *testing.T) {
	var digests [2]map[string]v1.Hash
	for i := range digests {
		digests[i] = map[string]v1.Hash{}
		o := made(t, map[string][]byte{"amd64": compiled(t, small, "amd64"), "arm64": compiled(t, small, "arm64")})
		for _, p := range programs() {
			top, err := layout.ImageIndexFromPath(filepath.Join(o.out, p.name))
			if err != nil {
				t.Fatal(err)
			}
			if digests[i][p.name], err = top.Digest(); err != nil { // covers the bills of materials too
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(digests[0], digests[1]); diff != "" {
		t.Errorf("(-first +second)\n%s", diff)
	}
	seen := map[v1.Hash]bool{}
	for name, d := range digests[0] {
		if seen[d] {
			t.Errorf("%s is another program's image", name)
		}
		seen[d] = true
	}
}

// TestSBOMs checks the bills of materials beside the layout and in it, where they refer to the image of
// their architecture.
func TestSBOMs(t *testing.T) {
	o := made(t, map[string][]byte{"amd64": compiled(t, small, "amd64")})
	const name = "nvtopo-scheduler"
	beside, err := os.ReadFile(filepath.Join(o.out, name+".linux-amd64.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := json.Read(bytes.NewReader(beside))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range doc.Packages {
		got = append(got, p.PackageName)
	}
	if want := []string{name, "stdlib"}; !slices.Equal(got, want) || doc.Packages[0].PackageVersion != "v1.2.3" {
		t.Errorf("packages %q, want %q; version %s", got, want, doc.Packages[0].PackageVersion)
	}
	all, _ := images(t, o, name)
	subject, err := all["amd64"].Digest()
	if err != nil {
		t.Fatal(err)
	}
	top, err := layout.ImageIndexFromPath(filepath.Join(o.out, name))
	if err != nil {
		t.Fatal(err)
	}
	listed := manifest(t, top).Manifests
	if len(listed) != 2 {
		t.Fatalf("the layout lists %d manifests, want the image and its bill", len(listed))
	}
	attached, err := top.Image(listed[1].Digest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := attached.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if m.Config.MediaType != spdxType || m.Subject == nil || m.Subject.Digest != subject {
		t.Errorf("%s refers to %v, want %s", m.Config.MediaType, m.Subject, subject)
	}
	layers, err := attached.Layers()
	if err != nil {
		t.Fatal(err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // only read
	if within, err := io.ReadAll(r); err != nil || !bytes.Equal(within, beside) {
		t.Errorf("the bill in the layout is another than the one beside it (%v)", err)
	}
}

// TestErrors checks the errors for programs that cannot be made an image.
func TestErrors(t *testing.T) {
	if err := run(&options{programs: t.TempDir(), out: t.TempDir()}, io.Discard); err == nil || !bytes.Contains([]byte(err.Error()), []byte("nvtopo-scheduler: there is no program")) {
		t.Errorf("a folder without programs: %v", err)
	}
	p := programs()[0]
	if _, err := build(&p, "amd64", []byte("#!/bin/sh\n"), &options{}); err == nil {
		t.Error("a script was taken for a program")
	}
}

// TestUsers compares the images' users with those of the manifests: a pod runs as its manifest's user, a
// container without a manifest as its image's user.
func TestUsers(t *testing.T) {
	for name, manifest := range map[string]string{
		"nvtopo-scheduler": "scheduler/deployment.yaml", "nvtopo-exporter": "exporter/daemonset.yaml",
		"nvtopo-node-agent": "node-agent/daemonset.yaml", "nvtopo-pool-controller": "pools/deployment.yaml",
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "manifests", manifest))
		if err != nil {
			t.Fatal(err)
		}
		type security struct {
			RunAsUser  int `yaml:"runAsUser"`
			RunAsGroup int `yaml:"runAsGroup"`
		}
		var workload struct {
			Spec struct {
				Template struct {
					Spec struct {
						SecurityContext security `yaml:"securityContext"` // zero if it is not set
						Containers      []struct{ Image string }
					}
				}
			}
		}
		if err := yaml.Unmarshal(text, &workload); err != nil {
			t.Fatal(err)
		}
		pod := workload.Spec.Template.Spec
		want := fmt.Sprintf("%d:%d", pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup)
		i := slices.IndexFunc(programs(), func(p program) bool { return p.name == name })
		if i < 0 || programs()[i].user != want || pod.Containers[0].Image != name {
			t.Errorf("%s runs image %s as %s, and the images are %+v", manifest, pod.Containers[0].Image, want, programs())
		}
	}
}
