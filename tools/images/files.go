// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is a regular file or a symbolic link of an image.
type file struct {
	data []byte
	mode int64  // permissions
	link string // target, if it is a link
}

// files are the files of a layer, by their path without a leading slash.
type files map[string]file

// layer packs files and the folders that contain them. The same files make the same layer: all belong to
// root and have one time.
func (f files) layer(o *options) (v1.Layer, error) {
	all := maps.Clone(f)
	for name := range f {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			all[dir+"/"] = file{mode: 0o755}
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		h := header(name, all[name])
		h.ModTime = o.at
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := w.Write(all[name].data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	if o.plain {
		return static.NewLayer(b.Bytes(), types.OCIUncompressedLayer), nil
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression))
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	return l, nil
}

func header(name string, f file) *tar.Header {
	h := &tar.Header{Name: name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	switch {
	case strings.HasSuffix(name, "/"):
		h.Typeflag = tar.TypeDir
	case f.link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
	}
	return h
}

// users returns the user and group files of the images.
func users() files {
	return files{
		"etc/passwd": {mode: 0o644, data: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		"etc/group":  {mode: 0o644, data: []byte("root:x:0:\nnonroot:x:65532:\n")},
	}
}
