// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
)

// platform holds the names that differ between architectures.
type platform struct {
	triplet string // of Debian's folders of libraries
	loader  string // of programs, as they name it
}

func platforms() map[string]platform {
	return map[string]platform{
		"amd64": {"x86_64-linux-gnu", "/lib64/ld-linux-x86-64.so.2"},
		"arm64": {"aarch64-linux-gnu", "/lib/ld-linux-aarch64.so.1"},
	}
}

// opened are parts of the C library that no program names itself: NVIDIA's libnvidia-ml, which a program
// opens and the container toolkit mounts, needs them.
var opened = []string{"libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1"}

// debian are files of the machine that belong to its C library: the licence, and the file that NVIDIA's
// toolkit requires before it mounts the driver's libraries on the path of Debian's loader.
var debian = []string{"etc/debian_version", "usr/share/doc/libc6/copyright"}

// base holds the files that a program of a C library needs, from the machine that built it.
type base struct {
	files   files
	version string // of the C library
}

// dynamic reports whether a program needs a loader and libraries.
func dynamic(binary []byte) (bool, error) {
	f, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return false, fmt.Errorf("read its headers: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return true, nil
		}
	}
	return false, nil
}

// glibc collects the loader, the libraries that a program names, those that they name, and opened. root
// is the folder of arch's libraries: / or the folder of a cross compiler.
func glibc(binary []byte, arch, root string) (*base, error) {
	p, ok := platforms()[arch]
	if !ok {
		return nil, errors.New("no C library is known for " + arch)
	}
	needed, err := libraries(binary)
	if err != nil {
		return nil, err
	}
	folder := path.Join("usr/lib", p.triplet)
	b := &base{files: files{"lib": {link: "usr/lib"}, "lib64": {link: "usr/lib64"}}}
	for _, name := range debian {
		data, err := os.ReadFile(filepath.Join("/", name))
		if err != nil {
			return nil, fmt.Errorf("the machine is no Debian, whose C library is packed: %w", err)
		}
		b.files[name] = file{data: data, mode: 0o644}
	}
	queue := append(append([]string{path.Base(p.loader)}, opened...), needed...)
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		target := path.Join(folder, name)
		if _, done := b.files[target]; done {
			continue
		}
		data, err := read(root, p.triplet, name)
		if err != nil {
			return nil, err
		}
		more, err := libraries(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b.files[target] = file{data: data, mode: 0o755}
		queue = append(queue, more...)
	}
	loader := path.Join("usr", p.loader)
	b.files[loader] = file{link: path.Join("/", folder, path.Base(p.loader))}
	b.version, err = glibcVersion(b.files[path.Join(folder, "libc.so.6")].data)
	return b, err
}

// read reads a library from the folders in which Debian, or its cross compiler, installs it.
func read(root, triplet, name string) ([]byte, error) {
	var errs []error
	for _, folder := range []string{"usr/lib/" + triplet, "lib/" + triplet, "usr/" + triplet + "/lib"} {
		data, err := os.ReadFile(filepath.Join(root, folder, name))
		if err == nil {
			return data, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("library %s: %w", name, errors.Join(errs...))
}

// libraries returns the libraries that a program or a library names.
func libraries(binary []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("read its headers: %w", err)
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("read which libraries it needs: %w", err)
	}
	return names, nil
}

// banner matches the version in the C library's banner.
var banner = regexp.MustCompile(`GNU C Library \(([^)]*)\) stable release version`)

func glibcVersion(libc []byte) (string, error) {
	m := banner.FindSubmatch(libc)
	if m == nil {
		return "", errors.New("libc.so.6 does not say its version")
	}
	return string(m[1]), nil
}
