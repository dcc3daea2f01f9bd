// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	"github.com/nvtopo/nvtopo/internal/release"
)

// settings holds the flags of both commands.
type settings struct {
	kwok, scheduler, config, dir, logFile string
	schedulerArgs                         []string
	pools                                 *poolPrograms // nil without pools
}

func command(stdout, stderr io.Writer) *cobra.Command {
	s := &settings{}
	root := &cobra.Command{
		Use:           "nvtopo-devcluster",
		Short:         "A real control plane with simulated GPU nodes on this machine",
		Version:       release.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	flags := root.PersistentFlags()
	flags.StringVar(&s.kwok, "kwok", sibling("kwok"), "path of the kwok program")
	flags.StringVar(&s.scheduler, "scheduler", sibling("nvtopo-scheduler"), "path of the scheduler")
	flags.StringVar(&s.config, "scheduler-config", "", "KubeSchedulerConfiguration to use instead of the shipped one")
	flags.StringArrayVar(&s.schedulerArgs, "scheduler-arg", nil, "further flag of the scheduler, for example -v=5; may be repeated")
	flags.StringVar(&s.dir, "dir", "", "folder to keep everything in, and to leave in place; a temporary one by default")
	flags.StringVar(&s.logFile, "log-file", "", "file for the logs of all programs; without it they are only shown when something fails")
	root.AddCommand(upCommand(s), failCommand(true), failCommand(false), demoCommand(s), demoGangCommand(s), demoPoolsCommand(s), demoNodeCommand(s))
	return root
}

// sibling returns the path of a program in the same folder as this one.
func sibling(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// options checks the flags and converts them to the demo's options. log receives all logs.
func (s *settings) options(ctx context.Context, progress, log io.Writer) (*demo.Options, error) {
	o := &demo.Options{Kwok: s.kwok, Scheduler: s.scheduler, SchedulerArgs: s.schedulerArgs, Dir: s.dir, Progress: progress, Log: log}
	for _, path := range []string{s.kwok, s.scheduler} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("a program is missing (see --help): %w", err)
		}
	}
	if s.pools != nil {
		if err := s.pools.check(); err != nil {
			return nil, err
		}
		o.Kueue = &s.pools.kueue
	}
	if s.config != "" {
		data, err := os.ReadFile(s.config)
		if err != nil {
			return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
		}
		if err := s.checkConfig(ctx); err != nil {
			return nil, err
		}
		o.SchedulerConfig = data
	}
	return o, nil
}

// checkConfig runs the scheduler's configuration check before a cluster is started for it.
func (s *settings) checkConfig(ctx context.Context) error {
	if err := devcluster.CheckSchedulerConfig(ctx, s.scheduler, s.config, s.schedulerArgs...); err != nil {
		return fmt.Errorf("--scheduler-config: %w", err)
	}
	return nil
}

// logs opens the destination of all logs and directs klog there, which the in-process
// control plane logs through. The returned function closes it.
func (s *settings) logs() (*devcluster.Tail, func() error, error) {
	t := &devcluster.Tail{}
	done := func() error { return nil }
	if s.logFile != "" {
		f, err := os.OpenFile(s.logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("open the log file: %w", err)
		}
		t.File, done = f, f.Close
	}
	// A starting API server logs harmless errors. They are shown only if the start fails.
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	if err := errors.Join(fs.Set("logtostderr", "false"), fs.Set("stderrthreshold", "FATAL")); err != nil {
		return nil, nil, fmt.Errorf("direct the logs: %w", errors.Join(err, done()))
	}
	klog.SetOutput(t)
	return t, func() error {
		klog.Flush()
		klog.SetOutput(io.Discard)
		return done()
	}, nil
}
