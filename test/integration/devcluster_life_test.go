// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// parentDir, when set, makes TestDevclusterHelper start a cluster in that folder and wait to be killed.
const parentDir = "NVTOPO_TEST_PARENT_DIR"

// processesWith returns the ids of the processes whose command line has text.
func processesWith(t *testing.T, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		// A process may end between listing and reading.
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(text)) {
			out = append(out, filepath.Base(filepath.Dir(f)))
		}
	}
	return out
}

// TestSeveralDevclusters runs devclusters in parallel and one after another.
func TestSeveralDevclusters(t *testing.T) {
	kwok := testkit.Kwok(t)
	start := func() *devcluster.Cluster {
		c, err := devcluster.Start(t.Context(), devcluster.Config{Controllers: true, KwokBinary: kwok, Log: testkit.Log()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	check := func(c *devcluster.Cluster, node string) {
		t.Helper()
		client := clientFor(t, c)
		plainNode(t, client, node)
		l, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Items) != 1 || l.Items[0].Name != node {
			t.Errorf("nodes are %v, want only %s", l.Items, node)
		}
		_, err = client.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: podSpec()}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bind(t, client, "p", node)
		waitPhase(t, client, "default", "p", v1.PodRunning)
	}
	stop := func(c *devcluster.Cluster) {
		t.Helper()
		if len(processesWith(t, c.Dir())) == 0 {
			t.Error("no child process is found while the cluster runs: the next check would be worthless")
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stop again: %v", err)
		}
		if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
			t.Errorf("the folder is still there: %v", err)
		}
		if left := processesWith(t, c.Dir()); len(left) != 0 {
			t.Errorf("processes %v are left", left)
		}
	}
	a, b := start(), start()
	check(a, "in-a")
	check(b, "in-b")
	stop(a)
	check2 := start()
	check(check2, "in-c")
	stop(b)
	stop(check2)
}

// TestDevclusterStartFailure checks that a devcluster that cannot start leaves nothing.
func TestDevclusterStartFailure(t *testing.T) {
	tmp, err := os.MkdirTemp("", "dc") //nolint:usetesting // t.TempDir's path is too long for a socket in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	t.Setenv("TMPDIR", tmp)
	for name, tc := range map[string]struct {
		cfg       devcluster.Config
		wantError string
	}{
		"no kwok":      {cfg: devcluster.Config{Controllers: true, KwokBinary: "/nonexistent/kwok", Log: testkit.Log()}, wantError: "start kwok"},
		"a wrong flag": {cfg: devcluster.Config{APIServerArgs: []string{"--no-such-flag"}, Log: testkit.Log()}, wantError: "no-such-flag"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := devcluster.Start(t.Context(), tc.cfg)
			if err == nil {
				t.Fatalf("it started; stop: %v", c.Stop())
			}
			if !strings.Contains(err.Error(), tc.wantError) {
				t.Errorf("error %q, want %q in it", err, tc.wantError)
			}
			left, err := os.ReadDir(tmp)
			if err != nil {
				t.Fatal(err)
			}
			if len(left) != 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		// At every stage of a start: an API server that is cancelled among its post-start hooks ends the whole
		// process.
		began := time.Now()
		c, err := devcluster.Start(t.Context(), devcluster.Config{Log: testkit.Log()})
		if err != nil {
			t.Fatal(err)
		}
		whole := time.Since(began)
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		const stages = 8
		for stage := range stages {
			ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(stage)/stages)
			c, err := devcluster.Start(ctx, devcluster.Config{Log: testkit.Log()})
			cancel()
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("cancelled at stage %d of %d: %v", stage, stages, err)
				}
				continue
			}
			if err := c.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
			t.Errorf("%v is left (%v)", left, err)
		}
	})
}

// TestDevclusterHelper is no test: it is the process that the next test kills.
func TestDevclusterHelper(t *testing.T) {
	dir := os.Getenv(parentDir)
	if dir == "" {
		t.Skip("only runs as a child of TestDevclusterParentDeath")
	}
	if _, err := devcluster.Start(t.Context(), devcluster.Config{Dir: dir, KwokBinary: testkit.Kwok(t)}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("started")
	<-t.Context().Done()
}

// TestDevclusterParentDeath checks that the children of a devcluster die with their parent.
func TestDevclusterParentDeath(t *testing.T) {
	testkit.Kwok(t)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestDevclusterHelper$", "-test.v")
	cmd.Env = append(os.Environ(), parentDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	started := false
	for !started && lines.Scan() {
		started = strings.Contains(lines.Text(), "started")
	}
	if children := processesWith(t, dir); !started || len(children) == 0 {
		t.Errorf("started %t with children %v, want a running kwok", started, children)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the parent ended by itself")
	}
	testkit.Eventually(t, waitLimit, "the children die", func(context.Context) (bool, string) {
		left := processesWith(t, dir)
		return len(left) == 0, fmt.Sprint("left: ", left)
	})
}
