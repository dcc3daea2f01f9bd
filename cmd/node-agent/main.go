// SPDX-License-Identifier: Apache-2.0

// Command nvtopo-node-agent makes sure that the containers of its node get the GPUs
// that the scheduler chose for them.
package main

import (
	"os"

	"github.com/nvtopo/nvtopo/internal/daemon"
)

func main() { os.Exit(daemon.Run(newCommand(os.Getenv))) }
