// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/devcluster/demo"
)

func upCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Start the demo's cluster and keep it running until Ctrl-C",
		Long: `Starts a control plane, twelve simulated nodes and the scheduler, prints the line
that points kubectl at it, and removes everything at Ctrl-C.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return up(cmd, s) },
	}
}

func up(cmd *cobra.Command, s *settings) (err error) {
	ctx, progress := cmd.Context(), cmd.ErrOrStderr()
	log, closeLog, err := s.logs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	opts, err := s.options(progress, log)
	if err != nil {
		return err
	}
	c, err := demo.Boot(ctx, opts)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // run tells by it that somebody pressed Ctrl-C
		}
		_, _ = io.WriteString(progress, log.String()) // the error is reported anyway
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", c.Kubeconfig())
	fmt.Fprintln(progress, "running; Ctrl-C ends it and removes everything")
	<-ctx.Done()
	return c.Stop()
}
