// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/release"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Prints the version of this program, and the version of Kubernetes that it is built
from. Exporters and agents write theirs on their Leases, as the annotation ` + release.VersionKey + `.`,
		Example: `  NVTOPO version`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := programName + " " + release.Version()
			if k := release.Kubernetes(); k != "" {
				text += ", built from Kubernetes " + k
			}
			printf(cmd.OutOrStdout(), "%s\n", text)
			return nil
		},
	}
}
