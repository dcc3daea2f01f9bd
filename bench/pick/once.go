// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// onceArg as first argument makes the program do one slow pick and print its
// answer. Such a pick cannot be interrupted, but a process can be killed, and
// then it does not disturb the measurements that follow.
const onceArg = "pick-once"

// answer is the output of the child process.
type answer struct {
	NS     int64       `json:"ns"`
	Set    nvtopo.Mask `json:"set"`
	Failed string      `json:"failed,omitempty"`
}

// pickOnce is the child: machine, free set and k are its arguments.
func pickOnce(args []string, w io.Writer) error {
	if len(args) != 3 {
		return fmt.Errorf("%s: want machine, free set and k, got %d arguments", onceArg, len(args))
	}
	b, err := bedOf(args[0])
	if err != nil {
		return err
	}
	free, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("%s: free set: %w", onceArg, err)
	}
	k, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("%s: k: %w", onceArg, err)
	}
	a := newAllocator(b.graph)
	start := time.Now()
	set, err := a.pick(nvtopo.Mask(free), k)
	out := answer{NS: time.Since(start).Nanoseconds(), Set: set}
	if err != nil {
		out.Failed = err.Error()
	}
	return json.NewEncoder(w).Encode(out)
}

// askOnce lets a child process pick within the limit.
func askOnce(ctx context.Context, machine string, q question, limit time.Duration) (answer, error) {
	self, err := os.Executable()
	if err != nil {
		return answer{}, fmt.Errorf("finding this program: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(bounded, self, onceArg, machine, strconv.FormatUint(uint64(q.free), 10), strconv.Itoa(q.k))
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return answer{}, ctx.Err()
	case bounded.Err() != nil:
		return answer{NS: limit.Nanoseconds(), Failed: fmt.Sprintf("more than %v", limit)}, nil
	case err != nil:
		return answer{}, fmt.Errorf("picking in a child process: %w: %s", err, complaint.Bytes())
	}
	var a answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		return answer{}, fmt.Errorf("reading the child's answer: %w", err)
	}
	return a, nil
}
