// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
)

// report returns the table at the end of a run.
func (e *testEnv) report(p *plan, took time.Duration, leaks []string) string {
	var b strings.Builder
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(&b, "seed %d, plan %s, %s\n", p.Seed, p.hash(), took.Round(time.Second))
	section := func(title string) { fmt.Fprintf(&b, "%s\n", title) }
	line := func(what string, n int) { fmt.Fprintf(&b, "  %-60s %7d\n", what, n) }

	section("operations")
	total := 0
	for _, o := range operations {
		n := e.counts["op "+string(o.kind)]
		total += n
		line(string(o.kind), n)
	}
	n := e.counts["op "+string(opCreate)]
	line(string(opCreate), n)
	line("all", total+n)
	line("without an object", e.counts["op without an object"])

	section("faults injected")
	sum := map[faults.Kind]int{}
	requests := 0
	for _, r := range e.schedulers {
		for k, n := range r.proxy.Counts() {
			sum[k] += n
		}
		requests += r.proxy.Requests()
	}
	all := 0
	for _, k := range sortedKinds(sum) {
		line(string(k), sum[k])
		if k != faults.Slow && k != faults.WatchDelay {
			all += sum[k]
		}
	}
	line("all but delays", all)
	line("of requests", requests)

	section("gangs")
	for _, what := range sortedKeys(e.counts) {
		if aboutGangs(what) {
			line(what, e.counts[what])
		}
	}
	section("pods and checks")
	for _, what := range sortedKeys(e.counts) {
		if !strings.HasPrefix(what, "op ") && !aboutGangs(what) {
			line(what, e.counts[what])
		}
	}
	line("faults", len(e.failures))
	for _, f := range e.failures {
		fmt.Fprintf(&b, "    %s\n", f.text)
	}
	section("choices that kubelet could not give")
	for _, l := range e.conflicts.lines() {
		fmt.Fprintf(&b, "  %s\n", l)
	}
	section("changes of the control plane, and annotations that shared a GPU for a moment")
	for _, l := range e.marks {
		fmt.Fprintf(&b, "  %s\n", l)
	}
	section("held by the schedulers with no pod left")
	for _, l := range leaks {
		fmt.Fprintf(&b, "  %s\n", l)
	}
	return b.String()
}

func aboutGangs(what string) bool {
	return strings.HasPrefix(what, "gang") || strings.HasPrefix(what, "event Gang")
}

func sortedKinds(m map[faults.Kind]int) []faults.Kind {
	names := map[string]bool{}
	for k := range m {
		names[string(k)] = true
	}
	var out []faults.Kind
	for _, n := range sortedKeys(names) {
		out = append(out, faults.Kind(n))
	}
	return out
}

// tally returns the present value of a counter.
func (e *testEnv) tally(what string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[what]
}
