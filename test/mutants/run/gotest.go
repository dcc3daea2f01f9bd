// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tests are the tests of a package with the options of their run.
type tests struct {
	timeout time.Duration
	run     string // go test -run; empty: all
	overlay string // empty: the unchanged tree
	core    bool   // they start programs, whose changes go test does not notice
	bin     string // folder of these programs; empty: the tests build them from the tree
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
}

// goTest runs a package's tests, and returns the names of those that failed.
func (t *tests) goTest(ctx context.Context, p string) (what outcome, failed []string, output string, err error) {
	args := []string{"test", "-json", "-vet=off", "-timeout", t.timeout.String()}
	if t.overlay != "" {
		args = append(args, "-overlay", t.overlay)
	}
	if t.run != "" {
		args = append(args, "-run", t.run)
	}
	if t.core {
		args = append(args, "-count=1")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, p)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, binVariable) })
	if t.bin != "" {
		cmd.Env = append(cmd.Env, binVariable+t.bin)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ended := cmd.Run()
	if ctx.Err() != nil {
		return "", nil, "", ctx.Err()
	}
	built, late, failed, output := read(&stdout)
	output += stderr.String()
	switch {
	case ended == nil:
		return survived, nil, output, nil
	case !built:
		return notBuilt, nil, output, nil
	case late: // the running test is taken as failed
		return timedOut, failed, output, nil
	case len(failed) > 0:
		return killed, failed, output, nil
	}
	return failedElse, nil, output, nil
}

// read reads the output of go test -json: whether it was compiled, ran out of time, and which tests
// failed.
func read(stdout *bytes.Buffer) (built, late bool, failed []string, output string) {
	built = true
	var text strings.Builder
	for lines := bufio.NewReader(stdout); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		e := event{}
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		text.WriteString(e.Output)
		built = built && e.Action != "build-fail"
		late = late || strings.HasPrefix(e.Output, "panic: test timed out after")
		name, _, _ := strings.Cut(e.Test, "/")
		if e.Action == "fail" && name != "" && !slices.Contains(failed, name) {
			failed = append(failed, name)
		}
	}
	slices.Sort(failed)
	return built, late, failed, text.String()
}

// binVariable names the folder of the programs that tests start; see internal/testkit.
const binVariable = "NVTOPO_BIN="

// programs makes a folder like bin, which the tests without a mutant have filled, with the programs that
// link the package rebuilt from the mutant.
func programs(ctx context.Context, dir, overlay, own string) (bin string, err error) {
	bin = filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return "", err
	}
	have, err := filepath.Glob("bin/*")
	if err != nil {
		return "", err
	}
	for _, path := range have {
		target, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		if err := os.Symlink(target, filepath.Join(bin, filepath.Base(path))); err != nil {
			return "", err
		}
	}
	commands, err := filepath.Glob("cmd/*")
	if err != nil {
		return "", err
	}
	for _, path := range commands {
		name := "nvtopo-" + filepath.Base(path)
		if path == "cmd/nvtopo" {
			name = "nvtopo"
		}
		deps, err := exec.CommandContext(ctx, "go", "list", "-deps", "./"+path).Output()
		if err != nil {
			return "", fmt.Errorf("go list -deps ./%s: %w", path, err)
		}
		file := filepath.Join(bin, name)
		if _, err := os.Lstat(file); err == nil {
			if !slices.Contains(strings.Fields(string(deps)), own) {
				continue
			}
			if err := os.Remove(file); err != nil {
				return "", err
			}
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", file, "./"+path)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return bin, nil
}

// short returns an import path without the module's.
func short(p string) string { return strings.TrimPrefix(p, "github.com/nvtopo/nvtopo/") }
