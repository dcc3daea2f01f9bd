// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// ownerEnv makes TestMain's program the owner of a node that the test kills; its value is the node's
// folder.
const ownerEnv = "NVTOPO_E2E_OWNER"

// remains identify the resources of a node that can be left on the machine.
type remains struct {
	folder string
	mounts string // mount namespace of the node's first process
	cgroup string // part of the names of the node's cgroups
}

// remainsOf returns those of a running node.
func remainsOf(t *testing.T, l *gpunode.Lab, owner int) remains {
	t.Helper()
	ns, err := os.Readlink(filepath.Join(filepath.Dir(l.Node.Path("/")), "ns", "mnt"))
	if err != nil {
		t.Fatal(err)
	}
	return remains{folder: l.Node.Dir(), mounts: ns, cgroup: fmt.Sprintf("/nvtopo-realnode-%d-", owner)}
}

// processes lists those of the node: in its mount namespace or in its cgroup, which has containers with a
// namespace of their own. The kernel reuses the number of an ended namespace, possibly for a node that
// another program runs.
func (r remains) processes(t *testing.T) []string {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range folders {
		ns, _ := os.Readlink(filepath.Join(f, "ns", "mnt"))    // it may have ended
		groups, _ := os.ReadFile(filepath.Join(f, "cgroup"))   // likewise
		command, _ := os.ReadFile(filepath.Join(f, "cmdline")) // likewise
		ours := strings.Contains(string(groups), r.cgroup)
		theirs := !ours && strings.Contains(string(groups), "/nvtopo-realnode-")
		if ours || ns == r.mounts && !theirs {
			out = append(out, filepath.Base(f)+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return out
}

// cgroups lists the node's cgroups at the top level.
func (r remains) cgroups(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, err := filepath.Glob(pattern + r.cgroup + "*")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

// mounted lists the machine's mounts below the node's folder or with the node's cgroup name.
func (r remains) mounted(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, r.folder) || strings.Contains(line, "kubelet") || strings.Contains(line, "/run/containerd") {
			out = append(out, line)
		}
	}
	return out
}

// fixedPaths returns the paths to which the node's programs would write without a mount namespace of
// their own.
func fixedPaths() []string {
	return []string{
		"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/nvtopo", "/var/log/pods", "/var/log/containers", "/run/containerd", "/run/nri",
		"/opt/containerd", "/opt/nri", "/etc/nri", "/etc/cni", "/usr/libexec/kubernetes", "/var/run/nri",
	}
}

// existing describes which fixed paths exist, and the values of sysctls.
func existing(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, p := range fixedPaths() {
		_, err := os.Lstat(p)
		fmt.Fprintf(&b, "%s exists: %t\n", p, err == nil)
	}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"} {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s = %s", name, value)
	}
	return b.String()
}

// busy starts containers, so that there is something that could remain.
func busy(t *testing.T, l *testEnv) {
	t.Helper()
	for i, gpus := range []int{1, 2} {
		name := fmt.Sprintf("pod-%d", i)
		l.create(t, gpunode.Pod(name, gpus))
		l.observe(t, l.running(t, name))
	}
}

// TestCleanup checks that no process, mount, cgroup, file or sysctl remains of a node.
func TestCleanup(t *testing.T) {
	before := existing(t)

	t.Run("after Stop", func(t *testing.T) {
		var r remains
		t.Run("the node", func(t *testing.T) {
			l := start(t, gpunode.Config{})
			busy(t, l)
			r = remainsOf(t, l.Lab, os.Getpid())
			// kubelet, containerd, plugin, two shims, two sandboxes and two containers.
			if got := r.processes(t); len(got) < 9 {
				t.Errorf("the check sees %d processes of a running node: %q", len(got), got)
			}
			if len(r.cgroups(t)) == 0 {
				t.Error("the check sees no cgroups of a running node")
			}
		})
		if left := slices.Concat(r.processes(t), r.cgroups(t), r.mounted(t)); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		if _, err := os.Stat(r.folder); err == nil && os.Getenv("NVTOPO_E2E_LOGS") == "" {
			t.Errorf("left: %s", r.folder)
		}
	})

	t.Run("after the owner was killed", func(t *testing.T) {
		// Not the test's own, whose name is too long for the sockets of etcd.
		folder, err := os.MkdirTemp("", "nvtopo-e2e-") //nolint:usetesting // see above
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
		owner := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOwner$", "-test.v")
		owner.Env = append(os.Environ(), ownerEnv+"="+folder, "TMPDIR="+folder)
		out, err := owner.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		r := remains{folder: folder, cgroup: fmt.Sprintf("/nvtopo-realnode-%d-", owner.Process.Pid)}
		for lines := bufio.NewScanner(out); r.mounts == "" && lines.Scan(); {
			if _, ns, ok := strings.Cut(lines.Text(), "mount namespace "); ok {
				r.mounts = ns
			}
		}
		if got := r.processes(t); r.mounts == "" || len(got) < 9 {
			t.Errorf("the check sees %d processes of a running node: %q", len(got), got)
		}
		if err := owner.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = owner.Wait() // it was killed
		testkit.Eventually(t, patience, "its processes end", func(context.Context) (bool, string) {
			left := r.processes(t)
			return len(left) == 0, fmt.Sprintf("%q", left)
		})
		if left := slices.Concat(r.processes(t), r.mounted(t)); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		// The cgroups are empty, and removed by the start of the next node.
		t.Run("the next node", func(t *testing.T) { start(t, gpunode.Config{}) })
		if left := r.cgroups(t); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})

	if after := existing(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// TestOwner is the program that TestCleanup kills.
func TestOwner(t *testing.T) {
	folder := os.Getenv(ownerEnv)
	if folder == "" {
		t.Skip("only as the program that TestCleanup kills")
	}
	l, err := gpunode.Start(t.Context(), gpunode.Config{Bin: testkit.Bin(), Dir: folder, Scheduler: fastRetries})
	if err != nil {
		t.Fatal(err)
	}
	busy(t, &testEnv{l})
	_, _ = fmt.Fprintln(os.Stdout, "mount namespace", remainsOf(t, l, os.Getpid()).mounts)
	select {} // until the SIGKILL
}
