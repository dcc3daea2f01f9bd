// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// host reads the machine's CPUs and memory nodes from sysfs. It is read for every container, because CPUs
// and memory can go offline.
type host struct{ root string }

// online returns the online CPUs without those that isolcpus keeps from the kernel's scheduler. Without a
// cpuset no container runs on isolated CPUs; a cpuset with an isolated CPU would put the container there.
func (h host) online() (nvtopo.CPUSet, error) {
	online, err := h.list("devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	isolated, err := h.list("devices/system/cpu/isolated")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return online.Minus(isolated), nil
}

// memory returns the NUMA nodes that have memory. The kernel rejects a cpuset with any other node, and
// then the container fails.
func (h host) memory() (nvtopo.CPUSet, error) { return h.list("devices/system/node/has_memory") }

func (h host) list(file string) (nvtopo.CPUSet, error) {
	data, err := os.ReadFile(filepath.Join(h.root, file))
	if err != nil {
		return nil, fmt.Errorf("sysfs: %w", err)
	}
	set, err := nvtopo.ParseCPUList(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("sysfs: %s: %w", file, err)
	}
	return set, nil
}
