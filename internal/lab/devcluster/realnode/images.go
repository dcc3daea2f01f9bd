// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// importImages hands the probe and Config.Images to containerd.
func (n *Node) importImages(ctx context.Context) error {
	probe := filepath.Join(n.dir, "probe.tar")
	if err := writeImage(probe, filepath.Join(n.cfg.Bin, probeBinary)); err != nil {
		return err
	}
	if err := n.importImage(ctx, "ctr", probe); err != nil {
		return err
	}
	for i, layout := range n.cfg.Images {
		packed := filepath.Join(n.dir, filepath.Base(layout)+".tar")
		if err := packFolder(packed, layout); err != nil {
			return fmt.Errorf("pack image %s: %w", layout, err)
		}
		if err := n.importImage(ctx, "ctr-"+strconv.Itoa(i+1), packed); err != nil {
			return err
		}
		if err := os.Remove(packed); err != nil {
			return fmt.Errorf("remove a packed image: %w", err)
		}
	}
	return nil
}

// importImage hands an archive to containerd. name is that of the process.
func (n *Node) importImage(ctx context.Context, name, archive string) error {
	ctr, err := n.Run(Program{
		Name: name, Path: filepath.Join(n.cfg.Bin, ctrBinary),
		Args: []string{
			"-a", containerdSocket, "-n", criNamespace, "images", "import", "--local", "--snapshotter", "native",
			"--platform", "linux/" + runtime.GOARCH, archive,
		},
	})
	if err != nil {
		return err
	}
	select {
	case <-ctr.Done():
	case <-ctx.Done():
		return fmt.Errorf("import an image: %w", ctx.Err())
	}
	if how := ctr.Ended(); how != "exit status 0" {
		text, _ := os.ReadFile(n.logPath(name)) // only to explain
		return errors.New("import image " + archive + ": " + how + ": " + string(text))
	}
	return nil
}
