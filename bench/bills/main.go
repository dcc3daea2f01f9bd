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
	"strings"
	"syscall"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

const resultFile = "bench-bills.json"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-bills:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	Sessions []int    `json:"sessions"`
	Tenants  []int    `json:"tenants"`
	Kept     []string `json:"kept"`
	Events   int      `json:"events"`
	Anew     int      `json:"anew"`
	out      string
}

// Where sessions are kept.
const (
	inRecords = "records"
	inBatches = "batches"
)

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("bills", flag.ContinueOnError)
	fs.SetOutput(stderr)
	sessions := fs.String("sessions", "1000,100000,1000000", "how many sessions have ended this month, separated by commas")
	tenants := fs.String("tenants", "1,100,5000", "how many tenants they are of, separated by commas")
	kept := fs.String("kept", inBatches, "where they are: "+inRecords+", or "+inBatches+" but for a tenant's last thousand; separated by commas")
	fs.IntVar(&o.Events, "events", 40, "events in a cell")
	fs.IntVar(&o.Anew, "anew", 100_000, "the most sessions of a tenant of which a statement is computed anew")
	fs.StringVar(&o.out, "out", "../out", "folder of the results")
	if err := fs.Parse(args); err != nil {
		return nil, err // the flag package printed it with the usage
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	var errs [2]error
	o.Sessions, errs[0] = numbers(*sessions)
	o.Tenants, errs[1] = numbers(*tenants)
	o.Kept = strings.Split(*kept, ",")
	for _, k := range o.Kept {
		if k != inRecords && k != inBatches {
			return nil, fmt.Errorf("-kept: no %q, only %s and %s", k, inRecords, inBatches)
		}
	}
	if o.Events < 1 {
		return nil, errors.New("-events must be 1 at least")
	}
	return o, errors.Join(errs[:]...)
}

func numbers(list string) (out []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: want numbers of 1 at least, separated by commas", list)
		}
		out = append(out, n)
	}
	return out, nil
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	env := report.Capture(ctx)
	var cells []*cell
	for _, kept := range o.Kept {
		for _, sessions := range o.Sessions {
			for _, tenants := range o.Tenants {
				if tenants > sessions {
					continue
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				fmt.Fprintf(stderr, "%d sessions in %s, %d tenants\n", sessions, kept, tenants)
				c, err := measure(o, sessions, tenants, kept)
				if err != nil {
					return fmt.Errorf("%d sessions in %s, %d tenants: %w", sessions, kept, tenants, err)
				}
				cells = append(cells, c)
			}
		}
	}
	if err := errors.Join(table(cells).Write(stdout), pages(cells).Write(stdout)); err != nil {
		return err
	}
	fmt.Fprintln(stdout, env)
	return report.WriteJSON(filepath.Join(o.out, resultFile), env, struct {
		Options *options `json:"options"`
		Cells   []*cell  `json:"cells"`
	}{o, cells})
}

// pages returns the table of the web's pages.
func pages(cells []*cell) *report.Table {
	t := &report.Table{
		Title:  "What the web shows of bills, computed and encoded, without what the API server takes to list objects:",
		Header: []string{"sessions", "in", "tenants", "all tenants' amounts, CPU ms", "one tenant's bill", "all tenants' bills"},
	}
	for _, c := range cells {
		t.Add(strconv.Itoa(c.Sessions), c.Kept, strconv.Itoa(c.Tenants), number(c.PageMs, 1), number(c.BillMs, 1), number(c.BillsMs, 0))
	}
	return t
}

func table(cells []*cell) *report.Table {
	t := &report.Table{
		Title: "What an event costs, and what all tenants' tallies take beside the objects:",
		Header: []string{
			"sessions", "in", "tenants", "CPU ms/event", "worst", "MiB/event", "anew CPU ms/event", "anew MiB/event",
			"CPU ms at the start", "objects MiB", "tallies MiB", "bytes/session",
		},
	}
	for _, c := range cells {
		t.Add(strconv.Itoa(c.Sessions), c.Kept, strconv.Itoa(c.Tenants), number(c.Tally.Median, 3), number(c.Tally.Worst, 3), number(c.Tally.MiB, 2),
			number(c.Anew.Median, 1), number(c.Anew.MiB, 1), number(c.StartMs, 0), number(c.ObjectsMiB, 0), number(c.TalliesMiB, 0), number(c.Bytes, 0))
	}
	return t
}

// number is a dash where nothing was measured.
func number(v float64, decimals int) string {
	if v < 0 {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
