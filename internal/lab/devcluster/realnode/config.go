// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Programs that the node consists of, in Config.Bin.
const (
	kubeletBinary    = "kubelet"
	containerdBinary = "containerd"
	shimBinary       = "containerd-shim-runc-v2"
	ctrBinary        = "ctr"
	probeBinary      = "nvtopo-probe"
	// cniFolder has the plugins that Config.Network needs, in Config.Bin.
	cniFolder = "cni"
)

// defaultMaxPods is kubelet's default limit of pods on a node.
const defaultMaxPods = 110

// Config configures a node.
type Config struct {
	// Name of the Node object.
	Name string
	// Bin is the folder of kubelet, containerd, its shim, ctr and the probe.
	Bin string
	// KubeletProgram is kubelet's file in Bin; "kubelet" when empty.
	KubeletProgram string
	// Dir is the folder for logs and configuration. When empty, a temporary one is created and Stop removes
	// it. It must not be in /run, /var/lib or /var/log, which are private on the node.
	Dir string
	// Kubelet holds fields of the KubeletConfiguration that replace the defaults of this package, for
	// example {"cpuManagerPolicy": "static"}.
	Kubelet map[string]any
	// NRI switches containerd's node resource interface on; see Node.NRISocket.
	NRI bool
	// Binds maps paths on the node to folders of the machine that are mounted there.
	Binds map[string]string
	// Network gives the node its own network namespace, and one to each pod without host network; these
	// reach the API server at its Service's address. No other machine reaches the node. Without it the node
	// shares the machine's network.
	Network bool
	// Images are OCI layouts that the node has beside the probe: folders, as `make images` leaves
	// them.
	Images []string
	// Handlers are runtimes that a RuntimeClass may name beside the default: the handler -> the
	// path of the OCI specification that its containers begin with.
	Handlers map[string]string
	// Log receives the output of the node's first process; nil discards it.
	Log io.Writer
}

// Check returns an error that lists the prerequisites of a real node that this machine lacks.
func Check(bin string) error {
	if runtime.GOOS != "linux" {
		return errors.New("a real node needs Linux: namespaces and cgroups")
	}
	if os.Geteuid() != 0 {
		return errors.New("a real node needs root: it makes mount and PID namespaces and cgroups")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		return fmt.Errorf("a real node needs runc (scripts/install-runc.sh): %w", err)
	}
	for _, name := range []string{kubeletBinary, containerdBinary, shimBinary, ctrBinary, probeBinary} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("a real node needs a program that is not there (make node-programs): %w", err)
		}
	}
	return nil
}

// prepare returns the folder to use, made and absolute, and whether it is ours to remove.
func (c *Config) prepare() (dir string, owned bool, err error) {
	if c.Bin, err = filepath.Abs(c.Bin); err != nil {
		return "", false, fmt.Errorf("the folder of programs: %w", err)
	}
	if err := Check(c.Bin); err != nil {
		return "", false, err
	}
	for _, plugin := range []string{"ptp", "host-local"} {
		if _, err := os.Stat(filepath.Join(c.Bin, cniFolder, plugin)); c.Network && err != nil {
			return "", false, fmt.Errorf("a network of pods needs a program that is not there (make node-programs): %w", err)
		}
	}
	if c.KubeletProgram == "" {
		c.KubeletProgram = kubeletBinary
	}
	if _, err := os.Stat(filepath.Join(c.Bin, c.KubeletProgram)); err != nil {
		return "", false, fmt.Errorf("a real node needs a program that is not there (make node-programs): %w", err)
	}
	if c.Name == "" {
		return "", false, errors.New("the node has no name")
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	if owned = c.Dir == ""; owned {
		dir, err = os.MkdirTemp("", "nvtopo-node-")
	} else if dir, err = filepath.Abs(c.Dir); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", false, fmt.Errorf("make the node's folder: %w", err)
	}
	return dir, owned, nil
}
