// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// checkingConfig is the command check-config with its flags.
type checkingConfig struct {
	file, program, featureGates, output string
}

func newCheckConfig() *cobra.Command {
	c := &checkingConfig{}
	cmd := &cobra.Command{
		Use:   "check-config -f FILE",
		Short: "Tell whether the scheduler would start with a configuration, and what it would do",
		Long: `Check a KubeSchedulerConfiguration before the scheduler gets it. nvtopo-scheduler
itself reads it, sets its defaults, and makes its profiles and plugins without a
cluster; it has to be in PATH or named by --program. It asks no API server, and reads
no other file, such as a kubeconfig or certificates.

It answers with the profiles: the plugins of nvtopo that each has, with weights and
arguments, those of kube-scheduler that score, with weights, and what has no effect.
-o json and -o yaml have all arguments.

A ConfigMap is read, too: each of its values that is a KubeSchedulerConfiguration is
checked, and answered for by itself.

Exit codes: 0 the scheduler would start; 2 wrong usage; 3 it would not, or the file
could not be read: the error names the file and the field.`,
		Example: `  NVTOPO check-config -f scheduler-config.yaml
  NVTOPO generate scheduler-profile --workload training | NVTOPO check-config -f -
  kubectl get configmap -n nvtopo-system nvtopo-scheduler-config -o yaml | NVTOPO check-config -f -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&c.file, "file", "f", "", `file with a KubeSchedulerConfiguration or a ConfigMap; "-" is standard input`)
	f.StringVar(&c.program, "program", "nvtopo-scheduler", "the scheduler's program")
	f.StringVar(&c.featureGates, "feature-gates", "", "the scheduler's --feature-gates, as A=true,B=false")
	bindForm(cmd, &c.output, plainForms[:]...)
	return cmd
}

func (c *checkingConfig) run(cmd *cobra.Command) error {
	if err := checkForm(c.output, plainForms[:]...); err != nil {
		return err
	}
	if c.file == "" {
		return usagef("--file: the configuration to check is missing")
	}
	data, err := readFile(cmd, c.file)
	if err != nil {
		return err
	}
	configs, err := configsIn(shownName(c.file), data)
	if err != nil {
		return err
	}
	var answers bytes.Buffer
	for i := range configs {
		if i > 0 && c.output == "yaml" {
			answers.WriteString("---\n")
		}
		answer, err := c.ask(cmd.Context(), &configs[i])
		if err != nil {
			return err
		}
		answers.Write(answer)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), printableLines(answers.String()))
	return err
}

// ask runs the scheduler's program on one configuration.
func (c *checkingConfig) ask(ctx context.Context, config *namedConfig) ([]byte, error) {
	args := []string{"--check-config=" + c.output, "--check-config-name=" + config.name, "--config=/dev/stdin"}
	if c.featureGates != "" {
		args = append(args, "--feature-gates="+c.featureGates)
	}
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Stdin = bytes.NewReader(config.text)
	var words bytes.Buffer
	cmd.Stderr = &words
	answer, err := cmd.Output()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		lines := strings.Split(strings.TrimSpace(words.String()), "\n")
		return nil, inputf("%s", strings.TrimPrefix(lines[len(lines)-1], "nvtopo-scheduler: "))
	}
	if err != nil {
		return nil, inputf("--program %s: %w", c.program, err)
	}
	return answer, nil
}

// namedConfig is a configuration and its name in messages.
type namedConfig struct {
	name string
	text []byte
}

// configsIn returns the configurations of a file: the file itself, or the values of a ConfigMap that are
// not of another kind.
func configsIn(name string, data []byte) ([]namedConfig, error) {
	var object struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(data, &object); err != nil || object.Kind != configMapKind {
		return []namedConfig{{name, data}}, nil //nolint:nilerr // what is wrong with it is the scheduler's to say
	}
	var out []namedConfig
	for _, key := range slices.Sorted(maps.Keys(object.Data)) {
		text := object.Data[key]
		if kind := kindOf([]byte(text)); kind == "" || kind == "KubeSchedulerConfiguration" {
			out = append(out, namedConfig{name + ": data[" + key + "]", []byte(text)})
		}
	}
	if len(out) == 0 {
		return nil, inputf("%s: data: want a KubeSchedulerConfiguration in one of the values of the ConfigMap, and there are %d", name, len(object.Data))
	}
	return out, nil
}
