// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvtopo/nvtopo/internal/release"
)

const (
	programName = "nvtopo"
	pluginName  = "kubectl-nvtopo"

	// programInText is replaced in help texts by the name under which the program was called.
	programInText = "NVTOPO"
)

// New returns the command. argv0 is the name under which the program was called: if that is
// kubectl-nvtopo, its help has "kubectl nvtopo".
func New(argv0 string) *cobra.Command {
	name := displayName(argv0)
	root := &cobra.Command{
		Use:   programName,
		Short: "Answer questions about the GPU links of a machine, and check a cluster",
		Long: `NVTOPO answers questions about the GPU links of one machine: which GPUs to take,
how to group them, what a collective operation costs on them, and which CPUs are
nearest. It uses the library and the objective of the nvtopo scheduler. It also
places gangs of pods by racks and switches, on paper, shows what a cluster has, who
holds it and which pods to move, checks whether it keeps that scheduler's promises, and
takes nvtopo out of it.

Commands about one machine (matrix, pick, groups, estimate, affinity, export, generate)
read it from one of
  -f FILE         the output of "nvidia-smi topo -m", or a NodeGPUTopology in YAML
                  or JSON (recognized by its content); "-" is standard input
  --machine NAME  a machine of the built-in catalogue, see "NVTOPO machines"
  --node NAME     the NodeGPUTopology of a cluster's node

Units: GB/s is 10^9 bytes per second in one direction. GPUs are named by index.

Exit codes: 0 answered; 1 nothing satisfies the request; 2 wrong usage;
3 the input could not be read. The command check has its own codes.`,
		Example: `  nvidia-smi topo -m | NVTOPO pick -n 4 -f -
  NVTOPO pick -n 4 --machine dgx1-v100 --free 0,2,3,4,5,7
  NVTOPO matrix --node gpu-node-7
  NVTOPO top`,
		Version:           release.Version(),
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: name},
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		// One or two typing errors: "piick" finds pick.
		SuggestionsMinimumDistance: 2,
		Args:                       knownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w\nSee '%s --help'", flagFault(err), cmd.CommandPath())
	})
	root.AddCommand(
		newMatrix(), newPick(), newGroups(), newEstimate(), newAffinity(), newExport(), newGenerate(), newMachines(), newFabric(), newSimulate(), newCheck(), newCheckConfig(),
		newPool(), newTopology(), newTop(), newGet(), newDefrag(), newExplain(), newWhatIf(), newSnapshot(), newVerifyNode(), newUI(), newUninstall(), newVersion(),
	)
	nameProgram(root, name)
	return root
}

// flagValues are the types of flags' values for which the flag library reports errors of Go's parser.
var flagValues = map[string]string{
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "float64": "a number", "float64Slice": "numbers with commas between them",
	"bool": "true or false", "duration": "a duration such as 90s or 10m", "count": "a whole number",
}

// flagFault returns an error with the flag, its value and the permitted values.
func flagFault(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	want := flagValues[wrong.GetFlag().Value.Type()]
	if want == "" {
		return err
	}
	return fmt.Errorf("--%s %q: want %s", wrong.GetFlag().Name, wrong.GetValue(), want)
}

func displayName(argv0 string) string {
	base := strings.TrimSuffix(filepath.Base(argv0), ".exe")
	if base == pluginName {
		return "kubectl " + programName
	}
	return programName
}

// nameProgram puts the name under which the program was called into the texts of all commands.
func nameProgram(cmd *cobra.Command, name string) {
	cmd.Long = strings.ReplaceAll(cmd.Long, programInText, name)
	cmd.Example = strings.ReplaceAll(cmd.Example, programInText, name)
	for _, c := range cmd.Commands() {
		nameProgram(c, name)
	}
}

// knownCommand refuses unknown commands, with cobra's suggestions.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q: %s", args[0], hint)
}

// commandArgs accepts positional arguments after "--" only: the command to start.
func commandArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		return usagef("%q: %s takes flags, and a command after \"--\", see '%s --help'", args[0], cmd.Name(), cmd.CommandPath())
	}
	return nil
}

// noArgs refuses positional arguments: every command takes flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%q: %s takes flags only, see '%s --help'", args[0], cmd.Name(), cmd.CommandPath())
	}
	return nil
}
