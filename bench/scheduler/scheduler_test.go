// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// schedulerEnv names the scheduler to test with; without it the one in bin/ is used, or built if
// missing.
const schedulerEnv = "NVTOPO_SCHEDULER"

func TestMain(m *testing.M) {
	// The benchmark starts its own program, here this test's, as the control plane.
	if len(os.Args) > 1 && os.Args[1] == controlPlaneCommand {
		os.Exit(serveControlPlane(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	if err := quietLogs("FATAL"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func schedulerBinary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(schedulerEnv); path != "" {
		return path
	}
	if path := filepath.Join(testkit.Bin(), "nvtopo-scheduler"); exists(path) {
		return path
	}
	return testkit.OwnProgram(t, "nvtopo-scheduler")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// tempFolder is a new folder which the benchmark puts its temporary ones in.
func tempFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nb-") //nolint:usetesting // etcd's sockets need a path shorter than t.TempDir's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	return dir
}

// leftovers are the folders in the temporary folder.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "nvtopo-*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestShortRun(t *testing.T) {
	binary, out := schedulerBinary(t), t.TempDir()
	temp := tempFolder(t)

	const pods, whole = 60, 50 // 8-GPU pods are as many as nodes, and those of the mix and the extended ones
	var stdout bytes.Buffer
	args := []string{"-short", "-workloads", "mix,whole,none,none-warm,extended", "-scheduler", binary, "-out", out, "-cpuprofile"}
	if err := command(t.Context(), args, &stdout, t.Output()); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	_, res := resultIn(t, filepath.Join(out, resultFile))
	if n := len(res.Cells); n != 10 {
		t.Fatalf("%d cells, want 5 workloads x 2 profiles", n)
	}
	for i := range res.Cells {
		c := &res.Cells[i]
		want := map[string]int{"mix": whole, "whole": whole, "none": pods, "none-warm": 3 * pods, "extended": whole}[c.Workload]
		checkCell(t, c, want)
		for _, kind := range []string{".cpu.pprof", ".heap.pprof"} {
			profile := filepath.Join(out, "bench-scheduler-50-"+c.Workload+"-"+c.Profile+kind)
			if info, err := os.Stat(profile); err != nil || info.Size() == 0 {
				t.Errorf("no %s of %s, %s: %v", kind, c.Workload, c.Profile, err)
			}
		}
	}
	rest := stdout.String()
	for _, part := range []string{"Summary: ", "| 50, none-warm ", "| binding 91 of 180", "50 nodes, 50 pods: 1, 2, 4", "50 nodes, 60 pods: pods without GPUs", "| ours-binding "} {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("%q is missing in the tables, or in the wrong place:\n%s", part, &stdout)
		}
		rest = after
	}
}

// TestHostileNodes: hostile nodes cost others little. It runs the scenario on a small scale: it
// schedules all pods, the objects are actually written, and the nodes are honest again after it.
func TestHostileNodes(t *testing.T) {
	out := t.TempDir()
	tempFolder(t)
	var stdout bytes.Buffer
	args := []string{
		"-short", "-workloads", "mix", "-profiles", profileBinding + "," + profileHostile + "," + profileUnlimited, "-hostile", "8", "-hostile-writes", "8", "-renewals", "20", "-hold", "1s",
		"-scheduler", schedulerBinary(t), "-out", out,
	}
	if err := command(t.Context(), args, &stdout, t.Output()); err != nil {
		t.Fatal(err)
	}
	_, res := resultIn(t, filepath.Join(out, resultFile))
	if len(res.Cells) != 3 {
		t.Fatalf("%d cells, want three", len(res.Cells))
	}
	for i := range res.Cells {
		c := &res.Cells[i]
		if c.Pods != 42 || c.Attempts["scheduled"] != 42 || c.LiveHeapMiB <= 0 {
			t.Errorf("%s: %d pods, attempts %v, %.0f MiB", c.Profile, c.Pods, c.Attempts, c.LiveHeapMiB)
		}
		if hostile := c.Profile != profileBinding; hostile != (c.HostileWrites > 0) {
			t.Errorf("%s: %.1f objects a second by hostile nodes, %d refused", c.Profile, c.HostileWrites, c.HostileRefused)
		}
		if c.Renewals == 0 || c.RenewalsFailed > 0 || c.RenewalP99Ms <= 0 {
			t.Errorf("%s: %d renewals by honest nodes, p99 %.1f ms, %d failed", c.Profile, c.Renewals, c.RenewalP99Ms, c.RenewalsFailed)
		}
	}
}

// checkCell checks the figures that do not depend on the machine's speed.
func checkCell(t *testing.T, c *Cell, pods int) {
	t.Helper()
	if c.Pods != pods || c.Attempts["scheduled"] != float64(pods) {
		t.Errorf("%s, %s: %d pods and attempts %v, want %d scheduled", c.Workload, c.Profile, c.Pods, c.Attempts, pods)
	}
	// Both profiles bind with one write. An unsuccessful attempt, before our graphs are read,
	// adds one with the reason.
	n, vain := float64(pods), c.Attempts["unschedulable"]
	if done := c.WritesPerPod * n; done < n || done > 1.2*n+vain || c.Writes["POST pods/binding 201"] != n {
		t.Errorf("%s, %s: %.2f writes a pod: %v", c.Workload, c.Profile, c.WritesPerPod, c.Writes)
	}
	measured := map[string]float64{
		"pods/s": c.PodsPerSecond, "window": c.WindowSeconds, "attempt p50": c.AttemptP50Ms, "attempt p99": c.AttemptP99Ms, "peak memory": c.SchedulerPeakMiB,
	}
	if c.WindowSeconds > 4*sampleInterval.Seconds() { // in less a process may not be seen to run
		measured["scheduler CPU"], measured["control plane CPU"] = c.SchedulerCPUMs, c.ControlPlaneCPUMs
	}
	for name, v := range measured {
		if !(v > 0) {
			t.Errorf("%s, %s: %s is %v", c.Workload, c.Profile, name, v)
		}
	}
	if warm := c.Workload == "none-warm"; (c.WindowFrom > 0) != warm || (c.GraphsRead > 0) != (warm && c.Profile != profileStock) {
		t.Errorf("%s, %s: the window begins with binding %d, %d graphs read", c.Workload, c.Profile, c.WindowFrom, c.GraphsRead)
	}
	batched := 0.0
	for _, n := range c.Batch {
		batched += n
	}
	if batched == 0 {
		t.Errorf("%s, %s: batching was never tried", c.Workload, c.Profile)
	}
	if c.Workload == "whole" && c.HintUsed == 0 {
		t.Errorf("%s: no 8-GPU pod took its node from the one before: %v", c.Profile, c.Batch)
	}
}

// TestInterrupt: an interrupted run leaves nothing behind.
func TestInterrupt(t *testing.T) {
	temp := tempFolder(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The first line of progress is printed when the nodes exist and the first cell begins.
	progress, write := io.Pipe()
	go func() {
		_, _ = progress.Read(make([]byte, 1))
		cancel()
		_, _ = io.Copy(io.Discard, progress)
	}()
	args := []string{"-short", "-nodes", "4", "-scheduler", schedulerBinary(t), "-out", t.TempDir()}
	err := command(ctx, args, io.Discard, write)
	_ = write.Close()
	if ctx.Err() == nil || err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("interrupted: %v", err)
	}
	// The folder goes with the child, which has ended by now.
	if left := leftovers(t, temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
