// SPDX-License-Identifier: Apache-2.0

// Command nvtopo-devcluster runs a real control plane with simulated GPU nodes on this machine. `up`
// keeps it running. `demo` has the scheduler place some forty pods on it, checks every placement and
// removes everything. `demo-node` runs pods on one real node with simulated GPUs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
)

func main() {
	realnode.Init() // demo-node starts this program as the first process of its node
	os.Exit(run())
}

func run() int {
	// The first Ctrl-C ends everything in order. stop restores the usual effect of a second one.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)

	err := command(os.Stdout, os.Stderr).ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "interrupted; nothing is left behind")
		return 130 // 128 + SIGINT, as in shells
	}
	fmt.Fprintln(os.Stderr, "nvtopo-devcluster:", err)
	return 1
}
