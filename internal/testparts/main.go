// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const usage = "usage: testparts run [-out DIR] PART…, or testparts judge -flakes DIR FILE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := start(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// start runs a verb and returns the exit code: 0 all passed, 1 something failed, 2 wrong arguments.
func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(stderr, usage)
		return 2
	}
	flags := flag.NewFlagSet("testparts "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "out", "folder of the logs, records and reasons of parts")
	flakes := flags.String("flakes", filepath.Join("out", "flakes"), "folder of the first outputs of tests that passed at a second try")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	var failed bool
	var err error
	switch {
	case args[0] == "run" && flags.NArg() > 0:
		failed, err = runParts(ctx, *out, "make", flags.Args(), stdout)
	case args[0] == "judge" && flags.NArg() == 1:
		failed, err = judgeFile(flags.Arg(0), *flakes, stdout)
	default:
		fmt.Fprintln(stderr, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, "testparts:", err)
	}
	if failed || err != nil {
		return 1
	}
	return 0
}
