// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/spdx/tools-golang/json"
)

// crossCompiler builds programs of a C library for arm64.
const crossCompiler = "aarch64-linux-gnu-gcc"

// TestCLibrary runs a program that needs a C library in its image, without the machine's.
func TestCLibrary(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root folder")
	}
	p := program{name: "small", user: nonroot}
	o := &options{libraries: "/", version: "v1"}
	b, err := build(&p, goarch(t), compiled(t, dynamically, goarch(t)), o)
	if err != nil {
		t.Fatal(err)
	}
	if b.libc == "" {
		t.Fatal("the program is static")
	}
	root := t.TempDir()
	unpack(t, b.image, root)
	cmd := exec.CommandContext(t.Context(), "/small")
	cmd.SysProcAttr = inRoot(root)
	cmd.Dir, cmd.Env = "/", []string{}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "small\n" {
		t.Errorf("it printed %q: %v", out, err)
	}
	doc, err := json.Read(bytes.NewReader(b.bill))
	if err != nil {
		t.Fatal(err)
	}
	if last := doc.Packages[len(doc.Packages)-1]; last.PackageName != "glibc" || last.PackageVersion != b.libc {
		t.Errorf("the bill of materials ends with %s %s, want glibc %s", last.PackageName, last.PackageVersion, b.libc)
	}
}

// TestCrossCLibrary checks that the cross compiler's C library is packed completely.
func TestCrossCLibrary(t *testing.T) {
	const arch = "arm64"
	if _, err := exec.LookPath(crossCompiler); err != nil || runtime.GOARCH == arch {
		t.Skipf("no cross compiler for arm64 is here: %v", err)
	}
	p := program{name: "small", user: nonroot}
	b, err := build(&p, arch, compiled(t, dynamically, arch), &options{libraries: "/", version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	unpack(t, b.image, root)
	const folder = "usr/lib/aarch64-linux-gnu/"
	for _, name := range append([]string{"libc.so.6", "ld-linux-aarch64.so.1"}, opened...) {
		f, err := elf.Open(filepath.Join(root, folder, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Machine != elf.EM_AARCH64 {
			t.Errorf("%s is for %v", name, f.Machine)
		}
		_ = f.Close() // only read
	}
	// The program names its loader by this path, the link to which leads within the image.
	link, err := os.Readlink(filepath.Join(root, "usr/lib/ld-linux-aarch64.so.1"))
	if want := "/" + folder + "ld-linux-aarch64.so.1"; link != want {
		t.Errorf("its loader is %q (%v), want %s", link, err, want)
	}
	if b.libc == "" {
		t.Error("the bill of materials does not know the version of the C library")
	}
	runEmulated(t, root)
}

// runEmulated runs a program of arm64 in its root folder, if an emulator is installed (Debian:
// qemu-user-static).
func runEmulated(t *testing.T, root string) {
	t.Helper()
	emulator, err := exec.LookPath("qemu-aarch64-static")
	if err != nil || os.Geteuid() != 0 {
		t.Logf("it was not run: no emulator is here, or no root to change the root folder: %v", err)
		return
	}
	program, err := os.ReadFile(emulator)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "emulator"), program, 0o755); err != nil { //nolint:gosec // others run it
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/emulator", "/small")
	cmd.SysProcAttr = inRoot(root)
	cmd.Dir, cmd.Env = "/", []string{}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "small\n" {
		t.Errorf("it printed %q: %v", out, err)
	}
}
