// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// demoCommand returns the demo's command with a temporary folder of its own, which has to be empty
// afterwards. Like clusters, demos run in parallel.
func demoCommand(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	return devclusterCommand(t, "demo", args...)
}

// devclusterCommand is demoCommand for any verb of the program that starts a cluster.
func devclusterCommand(t *testing.T, verb string, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	t.Parallel()
	tmp, err := os.MkdirTemp("", "dc") //nolint:usetesting // t.TempDir's path is too long for a socket in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	args = append([]string{
		verb, "--kwok", testkit.Kwok(t), "--scheduler", testkit.Program(t, "nvtopo-scheduler"),
	}, args...)
	cmd = exec.CommandContext(t.Context(), testkit.Program(t, "nvtopo-devcluster"), args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	return cmd, tmp
}

func checkNothingLeft(t *testing.T, tmp string) {
	t.Helper()
	left, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("files %v are left", left)
	}
	if p := processesWith(t, tmp); len(p) != 0 {
		t.Errorf("processes %v are left", p)
	}
}

// TestDemo checks that the demo places every pod best and leaves nothing.
func TestDemo(t *testing.T) {
	cmd, tmp := demoCommand(t, "-o", "json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	pods, refused := 0, 0
	nodes, owners := map[string]bool{}, map[int]bool{}
	for line := range strings.Lines(stdout.String()) {
		var r demo.Result
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&r); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		pods++
		switch {
		case r.Impossible:
			refused++
			if !strings.Contains(r.Reason, "NVLink") {
				t.Errorf("pod %s was refused with %q, want what was missing in it", r.Pod, r.Reason)
			}
		case len(r.UUIDs) != r.Asked || len(r.GPUs) != r.Asked || r.RingBandwidthGBps != r.BestRingBandwidthGBps || r.CPUs == "":
			t.Errorf("pod %s: %s", r.Pod, line)
		}
		nodes[r.Node] = true
		owners[r.Asked] = true
	}
	if pods < 36 || refused != 1 || len(nodes) < 6 || len(owners) < 5 {
		t.Errorf("%d pods of sizes %v on %d nodes, %d refused; want about 40 of 1, 2, 3, 4 and 8 GPUs on at least 6, 1 refused", pods, owners, len(nodes), refused)
	}
	checkNothingLeft(t, tmp)
}

// TestDemoInterrupt checks that an interrupted demo leaves nothing.
func TestDemoInterrupt(t *testing.T) {
	for name, after := range map[string]string{
		"while the control plane starts": "starting etcd",
		"while nodes are published":      "adding 12 nodes",
		"while the scheduler starts":     "starting the scheduler",
		"while pods are placed":          "wave 2 of 3",
	} {
		t.Run(name, func(t *testing.T) {
			cmd, tmp := demoCommand(t)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var printed strings.Builder
			lines := bufio.NewScanner(stderr)
			for lines.Scan() {
				printed.WriteString(lines.Text() + "\n")
				if strings.HasPrefix(lines.Text(), after) {
					if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
						t.Fatal(err)
					}
				}
			}
			err = cmd.Wait()
			seen := printed.String()
			if code := cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("exit code %d (%v), want 130\n%s", code, err, seen)
			}
			if !strings.Contains(seen, "nothing is left behind") {
				t.Errorf("it does not say that it cleaned up:\n%s", seen)
			}
			checkNothingLeft(t, tmp)
		})
	}
}
