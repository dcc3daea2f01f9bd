// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

const resultFile = "bench-tenants.json"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := quiet()
	if err == nil {
		err = command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-tenants:", err)
		os.Exit(1)
	}
}

// quiet drops the log of the API server in this process: failures are returned as
// errors.
func quiet() error {
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	klog.SetOutput(io.Discard)
	if err := errors.Join(fs.Set("logtostderr", "false"), fs.Set("stderrthreshold", "FATAL")); err != nil {
		return fmt.Errorf("direct the logs: %w", err)
	}
	return nil
}

// options are the flags.
type options struct {
	Nodes      int    `json:"nodes"`
	Pods       int    `json:"pods"`
	Impossible int    `json:"impossible"`
	Streams    int    `json:"streams"`
	Callers    int    `json:"callers"`
	Bars       bool   `json:"bars"`
	Gates      string `json:"featureGates,omitempty"`
	bin, out   string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("tenants", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.Nodes, "nodes", 200, "nodes of the cluster, with 8 GPUs each")
	fs.IntVar(&o.Pods, "pods", 60, "pods that are measured in each row")
	fs.IntVar(&o.Impossible, "impossible", 1000, "pods that no node has room for, as large as they may be")
	fs.IntVar(&o.Streams, "streams", 32, "streams of the web view, by one account")
	fs.IntVar(&o.Callers, "callers", 8, "clients that ask what-if questions without end, by one account")
	fs.BoolVar(&o.Bars, "bars", true, "end with 1 where a bar is missed")
	fs.StringVar(&o.Gates, "feature-gates", "", "of the scheduler, such as SchedulerAsyncAPICalls=true")
	fs.StringVar(&o.bin, "bin", "../bin", "folder of nvtopo-scheduler and nvtopo")
	fs.StringVar(&o.out, "out", "../out", "folder of the results")
	if err := fs.Parse(args); err != nil {
		return nil, err // the flag package printed it with the usage
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if min(o.Nodes, o.Pods, o.Impossible, o.Streams, o.Callers) < 1 {
		return nil, errors.New("-nodes, -pods, -impossible, -streams and -callers must be 1 at least")
	}
	return o, nil
}

// command runs the benchmark, prints the table and writes the results.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	environment := report.Capture(ctx)
	rows, err := run(ctx, o, stderr)
	if err != nil {
		return err
	}
	missed := judge(rows)
	err = errors.Join(table(o, rows).Write(stdout), report.WriteJSON(filepath.Join(o.out, resultFile), environment, struct {
		Options *options `json:"options"`
		Rows    []row    `json:"rows"`
		Missed  []string `json:"missed"`
	}{o, rows, missed}))
	fmt.Fprintln(stdout, environment)
	for _, m := range missed {
		fmt.Fprintln(stdout, "missed:", m)
	}
	if o.Bars && len(missed) > 0 {
		err = errors.Join(err, fmt.Errorf("%d bars are missed", len(missed)))
	}
	return err
}
