// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

const (
	// recent is the number of notes that are printed when a run fails.
	recent = 200
	// evidenceTime bounds how long a failing run waits for its evidence: schedulers may be stopped, and the
	// API server down.
	evidenceTime = 20 * time.Second
)

// note records a line for the case that the run fails.
func (e *testEnv) note(format string, args ...any) {
	line := fmt.Sprintf("%8.3f ", time.Since(e.start).Seconds()) + fmt.Sprintf(format, args...)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.notes = append(e.notes, line); len(e.notes) > 2*recent {
		e.notes = slices.Clone(e.notes[len(e.notes)-recent:])
	}
}

// mark is a note that is also in the report.
func (e *testEnv) mark(format string, args ...any) {
	e.note(format, args...)
	e.mu.Lock()
	e.marks = append(e.marks, e.notes[len(e.notes)-1])
	e.mu.Unlock()
}

// fault is why a run fails.
type fault struct {
	text      string
	violation bool // a broken invariant; otherwise an operation failed, or an expected event did not come
}

// fail records a failed operation, or an event that did not come within minutes, and ends the run.
func (e *testEnv) fail(format string, args ...any) { e.end(fault{fmt.Sprintf(format, args...), false}) }

// violate records a broken invariant, and ends the run.
func (e *testEnv) violate(format string, args ...any) {
	e.end(fault{fmt.Sprintf(format, args...), true})
}

func (e *testEnv) end(f fault) {
	e.note("FAULT %s", f.text)
	e.mu.Lock()
	e.failures = append(e.failures, f)
	first := len(e.failures) == 1
	e.mu.Unlock()
	if first {
		e.testify()
	}
	e.abort(errors.New(f.text))
}

// verdict fails the test if the run has faults, with the first violation if there is one.
func (e *testEnv) verdict(tb testing.TB, more string) {
	tb.Helper()
	e.mu.Lock()
	faults := slices.Clone(e.failures)
	e.mu.Unlock()
	if len(faults) == 0 {
		return
	}
	if i := slices.IndexFunc(faults, func(f fault) bool { return f.violation }); i >= 0 {
		testkit.Violation(tb, "%d faults, of which this is a violation: %s%s", len(faults), faults[i].text, more)
		return
	}
	tb.Errorf("%d faults; the first: %s%s", len(faults), faults[0].text, more)
}

// history returns the last notes.
func (e *testEnv) history() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.notes[max(0, len(e.notes)-recent):], "\n")
}

// evidence returns the folder for a run's files, empty for none: the schedulers' state at each calm, and
// their goroutines, metrics, heap and state when the run fails.
func evidence() string { return os.Getenv("NVTOPO_SOAK_EVIDENCE") }

// leave writes a file of evidence.
func (e *testEnv) leave(name string, content []byte) {
	dir := evidence()
	if dir == "" {
		return
	}
	err := os.MkdirAll(dir, 0o750)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("seed-%d-%04.0f-%s", e.seed, time.Since(e.start).Seconds(), name)), content, 0o600)
	}
	if err != nil {
		e.note("no evidence of %s: %v", name, err)
	}
}

// testify saves the state of a failing run before it ends.
func (e *testEnv) testify() {
	if evidence() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), evidenceTime)
	defer cancel()
	var own bytes.Buffer // of the API server too, which may fail to end
	if err := pprof.Lookup("goroutine").WriteTo(&own, 1); err == nil {
		e.leave("soak-goroutines", own.Bytes())
	}
	for _, r := range e.schedulers {
		for file, path := range map[string]string{
			"goroutines": "/debug/pprof/goroutine?debug=2", "metrics": "/metrics", "heap": "/debug/pprof/heap",
		} {
			if body, err := r.get(ctx, path); err == nil {
				e.leave(r.name+"-"+file, body)
			} else {
				e.note("no evidence of %s of %s: %v", file, r.name, err)
			}
		}
	}
	if e.debug != nil {
		e.note("claims%s", e.claims(ctx))
		for _, r := range e.schedulers {
			state, err := check.ReadScheduler(ctx, e.debug, "https://"+r.debug)
			e.leaveObject(r.name+"-state.json", state, err)
			e.leaveObject(r.name+"-watches.json", r.proxy.Watches(), nil)
		}
	}
	pods, err := e.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	e.leaveObject("pods.json", pods, err)
	events, err := e.kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	e.leaveObject("events.json", events, err)
	graphs, err := e.dyn.Resource(v1alpha1.GroupVersionResource).List(ctx, metav1.ListOptions{})
	e.leaveObject("graphs.json", graphs, err)
}

// beliefs returns each scheduler's view of a node, beside the API server's: whether its graph is used,
// which GPUs that offers, which are used, and which changes of its object are pending.
func (e *testEnv) beliefs(ctx context.Context, node string) string {
	ctx, cancel := context.WithTimeout(ctx, evidenceTime)
	defer cancel()
	var b strings.Builder
	if t := e.topology(node); t != nil {
		fmt.Fprintf(&b, "; the API server has version %s with %d GPUs", t.ResourceVersion, len(t.Spec.GPUs))
	}
	leader := e.leader(ctx)
	for _, r := range e.schedulers {
		d, err := check.ReadScheduler(ctx, e.debug, "https://"+r.debug)
		if err != nil {
			fmt.Fprintf(&b, "; %s: %v", r.name, err)
			continue
		}
		fmt.Fprintf(&b, "; %s (leads: %t)", r.name, r == leader)
		i := slices.IndexFunc(d.Nodes, func(n diagnosis.Node) bool { return n.Name == node })
		if i < 0 {
			b.WriteString(" knows nothing of it")
			continue
		}
		describeNode(&b, &d.Nodes[i], time.Now())
		for _, h := range d.Holds {
			if h.Node == node {
				fmt.Fprintf(&b, ", %d GPUs are kept for %s", len(h.GPUs), h.UID)
			}
		}
	}
	return b.String()
}

func describeNode(b *strings.Builder, n *diagnosis.Node, now time.Time) {
	fmt.Fprintf(b, " has version %s", n.ResourceVersion)
	if !n.Counts {
		fmt.Fprintf(b, ", which does not count (%s)", n.Why)
	}
	fmt.Fprintf(b, ", offers %d GPUs", len(n.Offered[string(gpuResource)]))
	usage := func(what string, u *diagnosis.Usage) {
		if u != nil {
			fmt.Fprintf(b, ", %s: %d used and %d counted", what, len(u.Used[string(gpuResource)]), u.Counted[string(gpuResource)])
		}
	}
	usage("derived", n.Derived)
	usage("remembered", n.Memo)
	fmt.Fprintf(b, ", %d free in the index", len(n.Indexed[string(gpuResource)]))
	if h := n.HeldBack; h != nil {
		fmt.Fprintf(b, ", version %s is held back since %.1f s (its graph only: %t)", h.ResourceVersion, now.Sub(h.Since).Seconds(), h.GraphOnly)
	}
}

func (e *testEnv) leaveObject(name string, obj any, err error) {
	var content []byte
	if err == nil {
		content, err = json.MarshalIndent(obj, "", " ")
	}
	if err != nil {
		e.note("no evidence of %s: %v", name, err)
		return
	}
	e.leave(name, content)
}
