// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

// newRefusals finds requests of the pool controller that the API server refused for want of a permission.
func newRefusals(next io.Writer) *faults {
	return &faults{next: next, what: "the pool controller may not do what it tries", tells: func(line string) bool {
		return strings.Contains(line, "is forbidden: User") || strings.Contains(line, "denied request")
	}}
}

// newCrashes finds programs that crashed: they are restarted, and no test would notice.
func newCrashes(next io.Writer) *faults {
	return &faults{next: next, what: "a program crashed", tells: func(line string) bool {
		return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "WARNING: DATA RACE")
	}}
}

// faults keeps the first few lines of a log that report a fault, and passes all on.
type faults struct {
	next  io.Writer
	what  string
	tells func(line string) bool

	mu      sync.Mutex
	lines   []string // guarded by mu
	ignored bool     // guarded by mu
}

// ignore sets whether later lines are ignored.
func (r *faults) ignore(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ignored = yes
}

// Write is called with one process's output, in pieces that may end within a line: a split line is
// missed, and logged again at the next try.
func (r *faults) Write(p []byte) (int, error) {
	const first = 5
	r.mu.Lock()
	for line := range strings.Lines(string(p)) {
		if r.tells(line) && !r.ignored && len(r.lines) < first {
			r.lines = append(r.lines, strings.TrimSpace(line))
		}
	}
	r.mu.Unlock()
	return r.next.Write(p)
}

func (r *faults) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) == 0 {
		return nil
	}
	return errors.New(r.what + ":\n" + strings.Join(r.lines, "\n"))
}

// TestRefusals checks that refusals are found.
func TestRefusals(t *testing.T) {
	r := newRefusals(io.Discard)
	for _, line := range []string{
		`E1 "Reconciler error" err="pods \"x\" not found"`,
		`E2 forbidden: unable to create new content in namespace s1-a because it is being terminated`,
	} {
		fmt.Fprintln(r, line)
	}
	if err := r.err(); err != nil {
		t.Errorf("found %v", err)
	}
	fmt.Fprintln(r, `E3 err="workloads \"x\" is forbidden: User \"system:serviceaccount:a:b\" cannot patch resource"`)
	if err := r.err(); err == nil || !strings.Contains(err.Error(), "E3") {
		t.Errorf("found %v, want E3", err)
	}
}

// TestCrashes checks that a crash is found, and that a line about one is not taken for one.
func TestCrashes(t *testing.T) {
	r := newCrashes(io.Discard)
	fmt.Fprintln(r, `E1 "Observed a panic: " in a handler`)
	if err := r.err(); err != nil {
		t.Errorf("found %v", err)
	}
	fmt.Fprintln(r, "panic: runtime error: index out of range")
	if err := r.err(); err == nil || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("found %v, want the panic", err)
	}
}
