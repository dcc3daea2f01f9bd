// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
)

func demoCommand(s *settings) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Let the scheduler place some forty pods, check every placement, remove everything",
		Long: `Starts a control plane, twelve simulated nodes of six kinds of machine and the
scheduler, creates pods in waves, and checks every placement by trying all: all sets
of GPUs on the pod's node, and all nodes. Progress goes to stderr, the result to stdout.
Exits with 1 if a pod got less than the best its node offered at the time, if its node was
none that the published order allowed then, or if a GPU had two owners.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("output %q: want table or json", output)
			}
			return runDemo(cmd, s, output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table, or json for one object per pod and line")
	return c
}

func runDemo(cmd *cobra.Command, s *settings, output string) error {
	report, err := onCluster(cmd, s, demo.Nodes(), demo.Run)
	if err != nil {
		return err
	}
	write := report.WriteTable
	if output == "json" {
		write = report.WriteJSON
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return err
	}
	return verdict(cmd, report)
}

// showScenes runs the scenes of a demo and prints their pictures. It returns an error if a promise was
// broken.
func showScenes(cmd *cobra.Command, s *settings, nodes []devcluster.NodeSpec, run func(context.Context, *devcluster.Cluster, io.Writer) (*demo.Pictures, error)) error {
	pictures, err := onCluster(cmd, s, nodes, run)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(cmd.OutOrStdout(), pictures.Text.String()); err != nil {
		return fmt.Errorf("write the pictures: %w", err)
	}
	for _, p := range pictures.Problems() {
		cmd.PrintErrln(p)
	}
	if n := len(pictures.Problems()); n > 0 {
		return fmt.Errorf("%d things are not as promised", n)
	}
	cmd.PrintErrf("read from the bound pods: %s\n", pictures.Verdict)
	return nil
}

// onCluster runs a demo on a cluster of the nodes, and removes all of it. If that fails, the logs of all
// programs are printed.
func onCluster[R any](
	cmd *cobra.Command, s *settings, nodes []devcluster.NodeSpec, run func(context.Context, *devcluster.Cluster, io.Writer) (R, error),
) (report R, err error) {
	ctx, progress := cmd.Context(), cmd.ErrOrStderr()
	log, closeLog, err := s.logs()
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	opts, err := s.options(ctx, progress, log)
	if err != nil {
		return report, err
	}
	opts.Nodes = nodes
	report, err = carryOut(ctx, opts, run)
	if err != nil && ctx.Err() != nil {
		return report, ctx.Err() // run in main.go recognizes Ctrl-C by it
	}
	if err != nil {
		_, _ = io.WriteString(progress, log.String()) // the error is reported anyway
	}
	return report, err
}

// carryOut runs the demo and stops the cluster.
func carryOut[R any](ctx context.Context, opts *demo.Options, run func(context.Context, *devcluster.Cluster, io.Writer) (R, error)) (_ R, err error) {
	c, err := demo.Boot(ctx, opts)
	if err != nil {
		var none R
		return none, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }() //nolint:contextcheck // it has to end although ctx may be over
	return run(ctx, c, opts.Progress)
}

// verdict prints the problems that the check found to stderr, and returns an error if there are any.
func verdict(cmd *cobra.Command, report *demo.Report) error {
	problems := report.Problems()
	for _, p := range problems {
		cmd.PrintErrln(p)
	}
	right, placed := report.Placed()
	cmd.PrintErrf("checked by brute force: %d of %d placed pods have GPUs and node as by trying all\n", right, placed)
	if len(problems) > 0 {
		return fmt.Errorf("%d of %d pods are wrong", len(problems), len(report.Results))
	}
	cmd.PrintErrln("no GPU had two owners")
	return nil
}
