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
	"slices"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

const resultFile = "bench-admission.json"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := quiet()
	if err == nil {
		err = command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-admission:", err)
		os.Exit(1)
	}
}

// quiet drops the API server's log in this process: failures are returned as errors.
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
	Sizes  []int `json:"sizes"`
	Rounds int   `json:"rounds"`
	Bars   bool  `json:"bars"`
	out    string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("admission", flag.ContinueOnError)
	fs.SetOutput(stderr)
	sizes := fs.String("sizes", "512,5000,10000,20000", "how many annotations, labels and so on, separated by commas, ascending")
	fs.IntVar(&o.Rounds, "rounds", 9, "requests of each kind and size with the bindings, and as many without")
	fs.BoolVar(&o.Bars, "bars", true, "end with 1 where a bar is missed")
	fs.StringVar(&o.out, "out", "../out", "folder of the results")
	if err := fs.Parse(args); err != nil {
		return nil, err // the flag package printed it with the usage
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	for s := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-sizes: %q is no number above 0", s)
		}
		o.Sizes = append(o.Sizes, n)
	}
	if !slices.IsSorted(o.Sizes) || o.Rounds < 1 {
		return nil, errors.New("-sizes must ascend, and -rounds be 1 at least")
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
	cells, err := run(ctx, o, stderr)
	if err != nil {
		return err
	}
	missed := judge(cells)
	err = errors.Join(table(o, cells).Write(stdout), report.WriteJSON(filepath.Join(o.out, resultFile), environment, struct {
		Options *options `json:"options"`
		Cells   []cell   `json:"cells"`
		Missed  []string `json:"missed"`
	}{o, cells, missed}))
	fmt.Fprintln(stdout, environment)
	for _, m := range missed {
		fmt.Fprintln(stdout, "missed:", m)
	}
	if o.Bars && len(missed) > 0 {
		err = errors.Join(err, fmt.Errorf("%d bars are missed", len(missed)))
	}
	return err
}
