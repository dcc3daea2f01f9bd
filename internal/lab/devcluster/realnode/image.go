// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// Image is the probe, which also holds pods' sandboxes. Pods name it with imagePullPolicy
// Never; their args are those of the probe.
const Image = "docker.io/nvtopo/probe:1"

// writeImage writes a docker archive of an image that consists of one program.
func writeImage(path, program string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the image's program: %w", err)
	}
	layer, err := archive(map[string][]byte{"probe": binary}, []string{"probe"}, 0o755)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/probe"}, "Cmd": []string{"pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return fmt.Errorf("write the image's configuration: %w", err)
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{Image}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("write the image's manifest: %w", err)
	}
	image, err := archive(
		map[string][]byte{"layer.tar": layer, "config.json": config, "manifest.json": manifest},
		[]string{"manifest.json", "config.json", "layer.tar"}, 0o644)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, image, 0o600); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

// packFolder writes a folder to an archive.
func packFolder(path, folder string) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make the archive: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	if err := w.AddFS(os.DirFS(folder)); err != nil {
		return fmt.Errorf("read the folder: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}

// archive packs files in the given order.
func archive(files map[string][]byte, order []string, mode int64) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range order {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(files[name])), Typeflag: tar.TypeReg}); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return out.Bytes(), nil
}
