// SPDX-License-Identifier: Apache-2.0

// Command nvtopo-exporter publishes the GPU link graph of the node it runs on.
package main

import (
	"os"

	"github.com/nvtopo/nvtopo/internal/daemon"
)

func main() { os.Exit(daemon.Run(newCommand(os.Getenv))) }
