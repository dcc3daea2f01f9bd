// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

// NewCommand returns the scheduler's verb what-if. It ends the process with whatif.ExitAsked if the
// question is at fault.
func NewCommand(plugins Plugins) *cobra.Command {
	var snapshot, file, output, namespace string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:    "what-if --snapshot FILE -f FILE",
		Short:  "Tell what would become of pods, by a snapshot",
		Hidden: true, // people use `nvtopo what-if`
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// kube-scheduler's log is about a cluster that does not exist; errors are returned.
			klog.LogToStderr(false)
			klog.SetOutput(io.Discard)
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			a, err := answerFiles(ctx, cmd.InOrStdin(), snapshot, file, namespace, plugins)
			if errors.Is(err, whatif.ErrAsked) {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				os.Exit(whatif.ExitAsked)
			}
			if err != nil {
				return err
			}
			return printAnswer(cmd.OutOrStdout(), a, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&snapshot, "snapshot", "-", `file of "nvtopo snapshot save"; "-" is standard input`)
	f.StringVarP(&file, "file", "f", "", "file with pods, what makes them, and PodGroups")
	f.StringVarP(&output, "output", "o", "json", "form of the answer: json or yaml")
	f.StringVarP(&namespace, "namespace", "n", "default", "namespace of objects that name none")
	f.DurationVar(&limit, "limit", time.Minute, "when a pod that is not decided counts as undecided")
	return cmd
}

func answerFiles(ctx context.Context, stdin io.Reader, snapshot, file, namespace string, plugins Plugins) (*whatif.Answer, error) {
	// First, so that a faulty question costs no snapshot.
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	asked, err := whatif.ReadAsked(text, namespace)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", whatif.ErrAsked, file, err)
	}
	in := stdin
	if snapshot != "-" {
		f, err := os.Open(snapshot)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	s, err := whatif.Read(in)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", snapshot, err)
	}
	return Answer(ctx, s, asked, plugins)
}

func printAnswer(out io.Writer, a *whatif.Answer, form string) error {
	encode := json.Marshal
	if form == "yaml" {
		encode = yaml.Marshal
	}
	text, err := encode(a)
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}
