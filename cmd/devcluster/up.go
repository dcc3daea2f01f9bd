// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/devcluster/demo"
	"github.com/nvtopo/nvtopo/internal/devcluster/pooldemo"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func upCommand(s *settings) *cobra.Command {
	var programs poolPrograms
	var pools bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Start the demo's cluster and keep it running until Ctrl-C",
		Long: `Starts a control plane, twelve simulated nodes and the scheduler, prints the line
that points kubectl at it, and removes everything at Ctrl-C. With --pools Kueue and the
pool controller run too (make bin/kueue build): jobs in namespaces with the label
` + poolv1alpha1.LabelTenant + ` start when their ComputePool has quota for them, and a
RemoteGPUSession becomes ready, although nothing serves at its endpoint: no container runs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pools {
				s.pools = &programs
			}
			return up(cmd, s)
		},
	}
	c.Flags().BoolVar(&pools, "pools", false, "run Kueue and the pool controller, for quotas and queues")
	programs.addFlags(c.Flags())
	return c
}

// exists is an error unless there is a file or folder.
func exists(path string) error {
	_, err := os.Stat(path)
	return err // it names the path
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
	if s.pools != nil {
		if err := pooldemo.Start(ctx, c, s.pools.controller); err != nil {
			return errors.Join(err, c.Stop())
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", c.Kubeconfig())
	fmt.Fprintln(progress, "running; Ctrl-C ends it and removes everything")
	<-ctx.Done()
	return c.Stop()
}
