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
	"strconv"
	"syscall"
	"time"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

const resultFile = "bench-webui.json"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-webui:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	Nodes    int           `json:"nodes"`
	Viewers  int           `json:"viewers"`
	Changes  int           `json:"changesPerSecond"`
	Duration time.Duration `json:"duration"`
	WarmUp   time.Duration `json:"warmUp"`
	program  string
	out      string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("webui", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.Nodes, "nodes", 1000, "nodes of 8 GPUs")
	fs.IntVar(&o.Viewers, "viewers", 20, "viewers of the stream")
	fs.IntVar(&o.Changes, "changes", 50, "changes of pods in a second")
	fs.DurationVar(&o.Duration, "duration", 20*time.Second, "time that a cell is measured")
	fs.DurationVar(&o.WarmUp, "warm-up", 5*time.Second, "time before that")
	fs.StringVar(&o.program, "program", "../bin/nvtopo", "the program nvtopo")
	fs.StringVar(&o.out, "out", "../out", "folder of the results")
	if err := fs.Parse(args); err != nil {
		return nil, err // the flag package printed it with the usage
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.Nodes < 1 || o.Viewers < 1 || o.Changes < 1 || o.Duration < time.Second {
		return nil, errors.New("-nodes, -viewers and -changes must be 1 at least, -duration a second")
	}
	return o, nil
}

func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 3 && args[0] == viewersCommand {
		viewers, err := strconv.Atoi(args[2])
		if err != nil {
			return fmt.Errorf("viewers: %w", err)
		}
		return view(ctx, args[1], viewers, stdin, stdout)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	environment := report.Capture(ctx)
	var cells []cell
	// A cluster without viewers and changes, with changes, and with both.
	for _, c := range []struct{ viewers, changes int }{{0, 0}, {0, o.Changes}, {1, o.Changes}, {o.Viewers, o.Changes}} {
		fmt.Fprintf(stderr, "%d viewers, %d changes/s\n", c.viewers, c.changes)
		done, err := measure(ctx, o, c.viewers, c.changes)
		if err != nil {
			return fmt.Errorf("%d viewers, %d changes/s: %w", c.viewers, c.changes, err)
		}
		cells = append(cells, done)
	}
	if err := table(o, cells).Write(stdout); err != nil {
		return err
	}
	fmt.Fprintln(stdout, environment)
	return report.WriteJSON(filepath.Join(o.out, resultFile), environment, struct {
		Options *options `json:"options"`
		Cells   []cell   `json:"cells"`
	}{o, cells})
}

func table(o *options, cells []cell) *report.Table {
	t := &report.Table{
		Title:  fmt.Sprintf("nvtopo ui with %d nodes of 8 GPUs, as a process of its own:", o.Nodes),
		Header: []string{"viewers", "changes/s", "CPU ms/s", "resident MiB", "peak MiB", "events each", "kB/s each", "CPU ms/s of the viewers"},
	}
	for _, c := range cells {
		rate := 0.0
		if c.Viewers > 0 {
			rate = float64(c.Seen.Bytes) / 1e3 / float64(c.Viewers) / (o.Duration + o.WarmUp).Seconds()
		}
		t.Add(strconv.Itoa(c.Viewers), strconv.Itoa(c.Changes), fmt.Sprintf("%.0f", c.ServerCPU), strconv.FormatInt(c.Resident>>20, 10),
			strconv.FormatInt(c.Peak>>20, 10), strconv.FormatInt(c.Seen.Events, 10), fmt.Sprintf("%.1f", rate), fmt.Sprintf("%.0f", c.ViewersCPU))
	}
	return t
}
