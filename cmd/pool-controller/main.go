// SPDX-License-Identifier: Apache-2.0

// Command nvtopo-pool-controller keeps Kueue's objects as ComputePools have them, runs
// ElasticJobs, and writes down who held which devices and what that costs.
package main

import (
	"os"

	"github.com/nvtopo/nvtopo/internal/daemon"
)

func main() { os.Exit(daemon.Run(newCommand())) }
