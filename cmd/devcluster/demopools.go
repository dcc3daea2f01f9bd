// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/pooldemo"
)

// poolPrograms holds the additional programs of a cluster with pools.
type poolPrograms struct {
	kueue      devcluster.KueueOptions
	controller string
}

func (p *poolPrograms) addFlags(f *pflag.FlagSet) {
	f.StringVar(&p.kueue.Binary, "kueue", sibling("kueue"), "path of the Kueue program")
	f.StringVar(&p.kueue.Config, "kueue-config", sibling("kueue-config"), "config folder of Kueue's module")
	f.StringVar(&p.controller, "pool-controller", sibling("nvtopo-pool-controller"), "path of the pool controller")
}

// check returns an error unless all the programs exist.
func (p *poolPrograms) check() error {
	if err := errors.Join(exists(p.kueue.Binary), exists(p.kueue.Config)); err != nil {
		return fmt.Errorf("kueue is missing (make bin/kueue): %w", err)
	}
	if err := exists(p.controller); err != nil {
		return fmt.Errorf("the pool controller is missing (make build): %w", err)
	}
	return nil
}

func demoPoolsCommand(s *settings) *cobra.Command {
	var programs poolPrograms
	c := &cobra.Command{
		Use:   "demo-pools",
		Short: "Share a pool of 64 GPUs among three tenants, draw who holds what and who pays, remove everything",
		Long: `Starts a control plane, eight simulated nodes, the scheduler, Kueue and the pool
controller. One tenant has the pool for itself, then all three have more work than there is
room for; a job grows into what is idle, and shrinks when another tenant takes back what is
guaranteed to it. After each, a picture has a letter for each GPU, and in the end there are the
invoices. Progress goes to stderr, the pictures to stdout. Exits with 1 if a share is not as
computed, or if anybody was beyond a limit at any change of a pod.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.pools = &programs
			return showScenes(cmd, s, pooldemo.Nodes(), func(ctx context.Context, c *devcluster.Cluster, progress io.Writer) (*demo.Pictures, error) {
				return pooldemo.Run(ctx, c, programs.controller, progress)
			})
		},
	}
	programs.addFlags(c.Flags())
	return c
}
