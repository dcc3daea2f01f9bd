// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// spdxType is the media type of a bill of materials.
const spdxType types.MediaType = "application/spdx+json"

// write writes an image of several architectures as an OCI layout, and the bills of materials both beside
// it and in it, as artifacts that refer to the image of their architecture. It returns the digest of the
// index, which identifies the image.
func write(p *program, all []*built, o *options) (v1.Hash, error) {
	folder := filepath.Join(o.out, p.name)
	if err := os.RemoveAll(folder); err != nil {
		return v1.Hash{}, fmt.Errorf("remove the image of before: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var bills []v1.Image
	for _, b := range all {
		described := v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: b.arch}}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: b.image, Descriptor: described})
		a, err := attached(b)
		if err != nil {
			return v1.Hash{}, err
		}
		bills = append(bills, a)
		file := filepath.Join(o.out, p.name+".linux-"+b.arch+".spdx.json")
		if err := os.WriteFile(file, b.bill, 0o644); err != nil { //nolint:gosec // for everybody to read
			return v1.Hash{}, fmt.Errorf("write a bill of materials: %w", err)
		}
	}
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("write the layout: %w", err)
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(names(p, o))); err != nil {
		return v1.Hash{}, fmt.Errorf("write the image: %w", err)
	}
	for _, a := range bills {
		if err := to.AppendImage(a); err != nil {
			return v1.Hash{}, fmt.Errorf("attach a bill of materials: %w", err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, fmt.Errorf("read the digest: %w", err)
	}
	return digest, nil
}

// attached returns the bill of materials as an artifact that refers to the image.
func attached(b *built) (v1.Image, error) {
	digest, err := b.image.Digest()
	if err != nil {
		return nil, fmt.Errorf("read the digest: %w", err)
	}
	size, err := b.image.Size()
	if err != nil {
		return nil, fmt.Errorf("read the size: %w", err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), spdxType)
	if img, err = mutate.AppendLayers(img, static.NewLayer(b.bill, spdxType)); err != nil {
		return nil, fmt.Errorf("attach the bill of materials: %w", err)
	}
	subject := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}
	return mutate.Subject(img, subject).(v1.Image), nil
}

// names returns the annotations by which a layout's image is found: the tag, by skopeo and oras, and the
// whole name, by containerd.
func names(p *program, o *options) map[string]string {
	name := p.name + ":" + o.tag
	if o.registry != "" {
		name = strings.TrimSuffix(o.registry, "/") + "/" + name
	} else {
		name = "docker.io/library/" + name // the meaning of a bare name to Kubernetes and containerd
	}
	return map[string]string{"org.opencontainers.image.ref.name": o.tag, "io.containerd.image.name": name}
}
