// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// goarch returns this machine's architecture.
func goarch(t *testing.T) string {
	t.Helper()
	return runtime.GOARCH
}

func inRoot(root string) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
}

// unpack writes the files of an image to a folder, readable by users other than root.
func unpack(t *testing.T, img v1.Image, root string) {
	t.Helper()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	r := mutate.Extract(img)
	defer func() { _ = r.Close() }() // only read
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(root, filepath.Clean("/"+h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(target, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, target)
		default:
			var data []byte
			if data, err = io.ReadAll(files); err == nil {
				err = os.WriteFile(target, data, os.FileMode(h.Mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
