// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// limitsFile is the file of the limits, below the root of the repository.
const limitsFile = "tools/measure/limits.yaml"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := start(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// start returns the exit code: 0 no figure is above its limit, 1 one is, or it cannot be measured, 2
// wrong arguments.
func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("measure", flag.ContinueOnError)
	flags.SetOutput(stderr)
	all := flags.Bool("all", false, "print all figures as Markdown tables; compare none")
	write := flags.Bool("write", false, "write today's figures to "+limitsFile)
	upward := flags.String("upward", "", "print the calls that go upward in this `package`, such as pkg/cli")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "measure: takes flags only, has %q\n", flags.Args())
		return 2
	}
	if err := run(ctx, *all, *write, *upward, stdout); err != nil {
		fmt.Fprintln(stderr, "measure:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, all, write bool, upward string, stdout io.Writer) error {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("find the root of the repository: %w", err)
	}
	root := strings.TrimSpace(string(out))
	file := filepath.Join(root, limitsFile)
	limits, err := readLimits(file)
	if err != nil {
		return err
	}
	figures, err := measure(ctx, root, limits.walks())
	switch {
	case err != nil:
		return err
	case upward != "":
		return printUpward(stdout, figures, upward)
	case all:
		printTables(stdout, figures)
		return nil
	case write:
		return writeLimits(file, limitsOf(figures))
	}
	above := limits.above(figures)
	for _, line := range above {
		fmt.Fprintln(stdout, line)
	}
	if len(above) > 0 {
		return fmt.Errorf("%d figures are above the limits in %s: make less of what grew; or write the new figures with "+
			"`go run -C tools ./measure -write`, and give the reason in the commit", len(above), limitsFile)
	}
	return nil
}

// measure returns all figures of the repository at root.
func measure(ctx context.Context, root string, walks []string) (*Figures, error) {
	names, err := listFiles(ctx, root)
	if err != nil {
		return nil, err
	}
	figures := &Figures{}
	if err := figures.read(os.DirFS(root), names); err != nil {
		return nil, err
	}
	sources, err := load(ctx, root, "./...")
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		figures.Types = append(figures.Types, typesOf(s)...)
		figures.Upward = append(figures.Upward, layersOf(s).upward())
		figures.Mutexes += mutexesOf(s)
	}
	walker := newWalker(sources)
	for _, start := range walks {
		walk, err := walker.walk(start)
		if err != nil {
			return nil, fmt.Errorf("%s: walks: %w", limitsFile, err)
		}
		figures.Walks = append(figures.Walks, walk)
	}
	return figures, nil
}

// listFiles returns the files of the repository that git knows or does not ignore.
func listFiles(ctx context.Context, root string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the repository's files: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}
