// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/release"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the release and which others it works with",
		Long: `Prints the release of this program and its level. Programs of two releases work
together if their levels are at most one apart; those of a node write theirs on
their Leases, as annotations ` + release.VersionKey + ` and ` + release.LevelKey + `.`,
		Example: `  NVTOPO version`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := fmt.Sprintf("%s %s, level %d", programName, release.Version(), release.Level)
			if k := release.Kubernetes(); k != "" {
				text += ", built from Kubernetes " + k
			}
			printf(cmd.OutOrStdout(), "%s\n", text)
			return nil
		},
	}
}
