// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Folders below that of -out. The make targets write into the last two: gotestsum's record of a part,
// PART.json or PART.….json, and the reason why a part was left out, PART.
const (
	logFolder     = "logs"
	flakeFolder   = "flakes"
	testFolder    = "tests"
	leftOutFolder = "left-out"
)

// partsVariable makes scripts/leave-out.sh leave out a part that cannot run instead of failing.
const partsVariable = "NVTOPO_PARTS"

// endTime is the time that an interrupted part has to end its processes.
const endTime = time.Minute

// part is a make target that was started.
type part struct {
	name   string
	beside bool // it ran beside others
	log    string
	done   chan struct{}

	// Known once done is closed.
	err       error
	wall, cpu time.Duration
}

// runner starts parts and keeps them in the order in which they were started.
type runner struct {
	out, make string
	stdout    io.Writer
	parts     []*part
}

// runParts makes the targets one after the other, continues after one that failed, prints a table, and
// returns whether one failed. A name that ends in & runs beside those after it, up to where the name
// stands again, or to the end.
func runParts(ctx context.Context, out, make string, names []string, stdout io.Writer) (failed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, folder := range []string{logFolder, flakeFolder, testFolder, leftOutFolder} {
		path := filepath.Join(out, folder)
		if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o755)); err != nil {
			return false, fmt.Errorf("make a folder for the parts: %w", err)
		}
	}
	r := &runner{out: out, make: make, stdout: stdout}
	begun := time.Now()
	beside := map[string]*part{}
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		if name, ok := strings.CutSuffix(name, "&"); ok {
			fmt.Fprintf(stdout, "== %s, beside what follows\n", name)
			if beside[name], err = r.start(ctx, name, true); err != nil {
				cancel(err)
			}
			continue
		}
		if p := beside[name]; p != nil {
			delete(beside, name)
			r.wait(p)
			continue
		}
		fmt.Fprintf(stdout, "== %s\n", name)
		p, err := r.start(ctx, name, false)
		if err != nil {
			cancel(err)
			break
		}
		r.wait(p)
	}
	for _, p := range r.parts {
		if beside[p.name] == p {
			r.wait(p)
		}
	}
	failed = r.table(time.Since(begun))
	return failed, context.Cause(ctx)
}

// start starts a part. Its output goes to its log, and at once to the terminal unless it runs beside
// others.
func (r *runner) start(ctx context.Context, name string, beside bool) (*part, error) {
	p := &part{name: name, beside: beside, log: filepath.Join(r.out, logFolder, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("make the log of %s: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, r.make, "--no-print-directory", name)
	cmd.Stdout = io.Writer(log)
	if !beside {
		cmd.Stdout = io.MultiWriter(r.stdout, log)
	}
	cmd.Stderr = cmd.Stdout
	cmd.Env = append(os.Environ(), partsVariable+"=1")
	// A group of its own, which is interrupted as a whole.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	r.parts = append(r.parts, p)
	go func() {
		defer close(p.done)
		p.err = errors.Join(cmd.Wait(), log.Close())
		p.wall = time.Since(begun)
		p.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}()
	return p, nil
}

// wait waits for a part, and prints the output of one that ran beside others.
func (r *runner) wait(p *part) {
	<-p.done
	if p.beside {
		fmt.Fprintf(r.stdout, "== %s, which went on beside\n", p.name)
		if log, err := os.ReadFile(p.log); err == nil {
			_, _ = r.stdout.Write(log)
		}
	}
	if p.err != nil {
		fmt.Fprintf(r.stdout, "== %s failed: %v; its output is in %s\n", p.name, p.err, p.log)
	}
}
