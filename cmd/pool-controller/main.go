// SPDX-License-Identifier: Apache-2.0

// Command nvtopo-pool-controller keeps Kueue's objects in line with the ComputePools, runs ElasticJobs,
// and records who held which devices and their cost.
package main

import (
	"os"

	"github.com/nvtopo/nvtopo/internal/daemon"
)

func main() { os.Exit(daemon.Run(newCommand())) }
