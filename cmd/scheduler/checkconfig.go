// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/nvtopo/nvtopo/pkg/scheduler/schedulerconfig"
)

// configChecks holds the flags for checking the configuration, and implements the check before a start.
type configChecks struct {
	form string // of the output; empty: run, do not check
	name string // of the file in messages; empty: as given

	own     frameworkruntime.Registry // plugins of this process that are not kube-scheduler's
	plugins schedulerconfig.Plugins   // creates others like them
}

// bind adds the flags to the command, and checks the configuration before the command runs, so that no
// failure to reach the cluster hides an error in it.
func (c *configChecks) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.form, "check-config", "", "check the file of --config, without a cluster, say what it configures (table, json or yaml), and exit")
	f.Lookup("check-config").NoOptDefVal = "table"
	f.StringVar(&c.name, "check-config-name", "", "with --check-config: what to call the file")
	for _, verb := range cmd.Commands() {
		answer := verb.RunE
		verb.RunE = func(cmd *cobra.Command, args []string) error {
			if err := answer(cmd, args); err != nil {
				return plainError{err}
			}
			return nil
		}
	}
	start := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		verflag.PrintAndExitIfRequested()
		path := cmd.Flags().Lookup("config").Value.String()
		if path == "" {
			if c.form != "" {
				return errors.New("--check-config: --config is missing, which names the file to check")
			}
			return start(cmd, args)
		}
		file, err := c.readQuietly(path)
		switch {
		case err != nil:
			return err
		case c.form != "":
			return c.check(cmd.Context(), file, cmd.OutOrStdout())
		}
		if err := start(cmd, args); err != nil {
			return file.Located(err)
		}
		return nil
	}
}

// readQuietly reads the file without kube-scheduler's log, which it prints again when it starts.
func (c *configChecks) readQuietly(path string) (*schedulerconfig.File, error) {
	klog.SetLogger(klog.Logger{}) // which logs nothing
	defer klog.ClearLogger()
	return c.read(path)
}

func (c *configChecks) read(path string) (*schedulerconfig.File, error) {
	name := path
	if c.name != "" {
		name = c.name
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, schedulerconfig.Unreadable(name, err)
	}
	return schedulerconfig.Read(name, text, c.own)
}

func (c *configChecks) check(ctx context.Context, file *schedulerconfig.File, out io.Writer) error {
	encode := json.Marshal
	switch c.form {
	case "table", "json":
	case "yaml":
		encode = yaml.Marshal
	default:
		return fmt.Errorf("--check-config %q: want table, json or yaml", c.form)
	}
	klog.SetLogger(klog.Logger{}) // of a cluster that does not exist; errors are returned
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	report, err := file.DryRun(ctx, c.plugins)
	if err != nil {
		return err
	}
	if c.form == "table" {
		return report.Print(out)
	}
	text, err := encode(report)
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

// run runs the command and returns the exit code. An error of flags or of the configuration is printed as
// the last line, unchanged, and so is the error of a verb; an error that ends the scheduler is logged as
// kube-scheduler does.
func run(cmd *cobra.Command, checks *configChecks) int {
	cmd.SilenceUsage = true // it would be some two hundred lines
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return plainError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	})
	err := cli.RunNoErrOutput(cmd)
	if err == nil {
		return 0
	}
	_, fault := errors.AsType[*schedulerconfig.Fault](err)
	_, plain := errors.AsType[plainError](err)
	if fault || plain || checks.form != "" {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		return 1
	}
	klog.ErrorS(err, "command failed")
	return 1
}

// plainError is printed unchanged: it is of the command line, or of a verb, which has no log.
type plainError struct{ error }

func (e plainError) Unwrap() error { return e.error }
