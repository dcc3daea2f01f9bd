// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// built is the image of a program for one architecture.
type built struct {
	arch  string
	image v1.Image
	bill  []byte
	libc  string // version of the C library in it; empty if the program is static
}

// build makes the image of a program: a layer of the files it needs, and a layer of the program.
func build(p *program, arch string, binary []byte, o *options) (*built, error) {
	below := users()
	out := &built{arch: arch}
	needs, err := dynamic(binary)
	if err != nil {
		return nil, err
	}
	if needs {
		b, err := glibc(binary, arch, o.libraries)
		if err != nil {
			return nil, err
		}
		maps.Copy(below, b.files)
		out.libc = b.version
	}
	if out.image, err = assemble(p, arch, below, files{p.name: {data: binary, mode: 0o755}}, o); err != nil {
		return nil, err
	}
	out.bill, err = bill(p, arch, binary, out.libc, o)
	return out, err
}

func assemble(p *program, arch string, below, above files, o *options) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, f := range []files{below, above} {
		l, err := f.layer(o)
		if err != nil {
			return nil, err
		}
		addendum := mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: o.at}, CreatedBy: "make images"}}
		if img, err = mutate.Append(img, addendum); err != nil {
			return nil, fmt.Errorf("add a layer: %w", err)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: o.at}
	config.Config = v1.Config{
		User: p.user, Entrypoint: []string{"/" + p.name}, WorkingDir: "/", Labels: labels(p, o),
		// For the libraries of NVIDIA's driver: their folder on distributions other than Debian.
		Env: []string{"PATH=/", "LD_LIBRARY_PATH=/usr/lib64"},
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	return img, nil
}

// labels returns the labels of the OCI's image specification.
func labels(p *program, o *options) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       p.name,
		"org.opencontainers.image.description": p.description,
		"org.opencontainers.image.version":     o.version,
		"org.opencontainers.image.revision":    o.revision,
		"org.opencontainers.image.source":      "https://github.com/nvtopo/nvtopo",
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}
