// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"k8s.io/apiserver/pkg/server"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// newCommand is kube-scheduler's command with its flags. It is put together here since
// app.NewSchedulerCommand shows nobody the scheduler that it makes (see settleFailures).
func newCommand(plugins ...app.Option) *cobra.Command {
	opts := options.NewOptions()
	cmd := &cobra.Command{
		Use:  "nvtopo-scheduler",
		Long: "kube-scheduler with plugins that choose GPUs by their links. It takes the stock flags; all else is set in its KubeSchedulerConfiguration.",
		Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return opts.ComponentGlobalsRegistry.Set() // feature gates, before anything asks for them
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, opts, plugins) },
	}
	named := opts.Flags
	verflag.AddFlags(named.FlagSet("global"))
	globalflag.AddGlobalFlags(named.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range named.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	width, _, err := term.TerminalSize(cmd.OutOrStdout())
	if err != nil {
		width = 0 // no terminal: lines are not wrapped
	}
	cliflag.SetUsageAndHelpFunc(cmd, *named, width)
	return cmd
}

// run schedules until a signal ends the process.
func run(cmd *cobra.Command, opts *options.Options, plugins []app.Option) error {
	verflag.PrintAndExitIfRequested()
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		return fmt.Errorf("set up the logs: %w", err)
	}
	cliflag.PrintFlags(cmd.Flags())

	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	signalled := server.SetupSignalHandler()
	go func() {
		select {
		case <-signalled:
			cancel()
		case <-ctx.Done():
		}
	}()
	config, sched, err := app.Setup(ctx, opts, plugins...)
	if err != nil {
		return fmt.Errorf("set up the scheduler: %w", err)
	}
	settleFailures(sched, config.InformerFactory.Core().V1().Pods().Lister())
	if g, ok := gates.(featuregate.MutableFeatureGate); ok {
		g.AddMetrics()
	}
	opts.ComponentGlobalsRegistry.AddMetrics()
	return app.Run(ctx, config, sched) //nolint:wrapcheck // the last word is kube-scheduler's
}
