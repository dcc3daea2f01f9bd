// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/cli/generate"
)

func newGenerate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Write configuration that fits a machine",
		Long: `Write configuration to standard output: of kubelet for a machine, of a container beside
its GPUs, of NCCL, and of the scheduler. Read it before you use it; comments in it say
why it is so. Nothing is changed.`,
		Example: `  NVTOPO generate kubelet-config --node gpu-node-7
  NVTOPO generate pod --gpus 4
  NVTOPO generate docker --machine dgx-a100 -n 2 --cpus 16
  NVTOPO generate nccl-topo --node gpu-node-7 --arch x86_64 --vendor AuthenticAMD
  NVTOPO generate scheduler-profile --workload training`,
		SuggestionsMinimumDistance: 2,
		Args:                       knownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGenerateKubelet(), newGeneratePod(), newGenerateDocker(), newGenerateNCCL(), newGenerateProfile())
	return cmd
}

// commandOf returns the command of a container: the words after "--", or those of --command.
func commandOf(flag string, words []string) ([]string, error) {
	if flag != "" && len(words) > 0 {
		return nil, usagef("--command cannot be used with a command after \"--\"")
	}
	return append(strings.Fields(flag), words...), nil
}

// writeGenerated prints a generator's result, or reports the error in its flags.
func writeGenerated(cmd *cobra.Command, data []byte, err error) error {
	switch {
	case errors.Is(err, generate.ErrNotKnown):
		return noAnswerf("%w", err)
	case err != nil:
		return usagef("%w", err)
	}
	if _, err := io.WriteString(cmd.OutOrStdout(), printableLines(string(data))); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// dockerAmount matches an amount of memory in Docker's form, which is binary.
var dockerAmount = regexp.MustCompile(`^([0-9]+)([bmg])$`)

// thousands matches an amount whose unit is 1000 bytes for Kubernetes and 1024 for Docker.
var thousands = regexp.MustCompile(`^([0-9]+)[kK]$`)

// dockerUnits are its units in Kubernetes' form.
var dockerUnits = map[string]string{"b": "", "m": "Mi", "g": "Gi"}

// parseQuantity reads an amount of memory in Kubernetes' form or in Docker's, in whole bytes.
func parseQuantity(flag, value string) (resource.Quantity, error) {
	const longest = 64 // a longer number is invalid, and would be slow to read
	if len(value) > longest {
		return resource.Quantity{}, usagef("%s: %d characters are no amount of memory", flag, len(value))
	}
	if m := thousands.FindStringSubmatch(value); m != nil {
		return resource.Quantity{}, usagef("%s %q may mean 1000 or 1024 bytes: write %s000, or %sKi", flag, value, m[1], m[1])
	}
	amount := value
	if m := dockerAmount.FindStringSubmatch(value); m != nil { // Kubernetes would read m as a thousandth
		amount = m[1] + dockerUnits[m[2]]
	}
	q, err := resource.ParseQuantity(amount)
	switch {
	case err != nil:
		return q, usagef("%s %q: want an amount of memory such as 16Gi or 16g", flag, value)
	case q.Sign() < 0 || q.CmpInt64(maxMemory) > 0:
		return q, usagef("%s %q: want 0 to 1Pi", flag, value)
	}
	// "0.5" is an amount too, rounded up.
	return *resource.NewQuantity(q.Value(), resource.BinarySI), nil
}

// maxMemory is 1 PiB, far above any machine's memory.
const maxMemory = 1 << 50
