// SPDX-License-Identifier: Apache-2.0

// Command nvtopo reports on the GPU links of one machine. The same binary installed as kubectl-nvtopo is
// a kubectl plugin, and as kubectl_complete-nvtopo it completes that plugin's arguments.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nvtopo/nvtopo/pkg/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	command := cli.New(os.Args[0])
	command.SetArgs(cli.Arguments(os.Args))
	err := command.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", command.Name(), cli.ErrorText(err))
	}
	os.Exit(cli.ExitCode(err))
}
