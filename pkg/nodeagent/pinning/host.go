// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// host reads what this machine has now. It is asked for every container: CPUs and
// memory can be taken offline.
type host struct{ root string }

// online returns the CPUs that run.
func (h host) online() (nvtopo.CPUSet, error) { return h.list("devices/system/cpu/online") }

// memory returns the NUMA nodes that have memory. The kernel refuses a cpuset of
// any other, and with it the container.
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
