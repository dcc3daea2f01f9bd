// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/gangdemo"
)

func demoGangCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "demo-gang",
		Short: "Place gangs of pods by racks and spines, draw who has which GPU, remove everything",
		Long: `Starts a control plane, 32 simulated nodes in eight racks on two spines and the scheduler.
Single pods, four gangs, the replacement of a member, a gang that waits for a rack and one for
which another is evicted come one after the other. After each, a picture has a line for each rack and a letter for each GPU.
Progress goes to stderr, the pictures to stdout. Exits with 1 if a gang is not where it was
promised, or a GPU has two owners.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return showScenes(cmd, s, gangdemo.Nodes(), gangdemo.Run) },
	}
}
