// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml/fakedriver"
)

// exporterNode is a node whose exporter reads a fake driver, in a process of its own.
type exporterNode struct {
	*testEnv
	*fakedriver.Driver
	name    string
	library string // the exporter's path of the driver's library
	xidHold time.Duration
	log     syncLog
	sound   *v1alpha1.NodeGPUTopology // published object before any fault

	process *exec.Cmd
	ended   chan error
}

// fakeLibrary returns the library that `make fakedriver` builds.
func fakeLibrary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", "fakedriver", fakedriver.LibraryName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; make fakedriver builds it", err)
	}
	return path
}

func newExporterNode(t *testing.T, l *testEnv, name, machineName string) *exporterNode {
	t.Helper()
	m, err := machine.Lookup(machineName)
	if err != nil {
		t.Fatal(err)
	}
	spec := devcluster.NodeSpec{Name: name, Machine: machineName}
	g, err := spec.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AddNode(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	d, err := fakedriver.Write(t.TempDir(), g, m.PCIeGen)
	if err != nil {
		t.Fatal(err)
	}
	return &exporterNode{testEnv: l, Driver: d, name: name, library: fakeLibrary(t), xidHold: 20 * time.Second}
}

// start runs the exporter as its DaemonSet does, with the rights of its account.
func (n *exporterNode) start(t *testing.T) {
	t.Helper()
	cfg, err := n.NodeBoundConfig(t.Context(), systemNamespace, "nvtopo-exporter", n.name)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := devcluster.WriteKubeconfigOf(cfg, kubeconfig); err != nil {
		t.Fatal(err)
	}
	n.process = exec.CommandContext(t.Context(), testkit.Program(t, "nvtopo-exporter"),
		"--source=nvml", "--nvml-library="+n.library, "--sysfs-root="+n.Sysfs(), "--xid-hold="+n.xidHold.String(),
		"--interval="+period.String(), "--node-name="+n.name, "--kubeconfig="+kubeconfig, "--metrics-address=")
	n.process.Env = append(os.Environ(), n.Env()...)
	n.process.Stdout, n.process.Stderr = &n.log, &n.log
	n.process.Cancel = func() error { return n.process.Process.Signal(syscall.SIGTERM) }
	n.process.WaitDelay = waitLimit
	if err := n.process.Start(); err != nil {
		t.Fatal(err)
	}
	n.ended = make(chan error, 1)
	go func() { n.ended <- n.process.Wait() }()
}

// stop terminates the exporter, which is no failure.
func (n *exporterNode) stop(t *testing.T) {
	t.Helper()
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	if err := <-n.ended; err != nil {
		t.Errorf("the exporter of %s ended with %v:\n%s", n.name, err, n.log.tail(4000))
	}
}

// get reads the published object, nil if there is none.
func (n *exporterNode) get(ctx context.Context) *v1alpha1.NodeGPUTopology {
	dyn, err := dynamic.NewForConfig(n.RESTConfig())
	if err != nil {
		return nil
	}
	u, err := dyn.Resource(v1alpha1.GroupVersionResource).Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	out := &v1alpha1.NodeGPUTopology{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out) != nil {
		return nil
	}
	return out
}

// says describes the differences of the published object from the sound one.
func (n *exporterNode) says(top *v1alpha1.NodeGPUTopology) []string {
	if top == nil {
		return []string{"nothing"}
	}
	var out []string
	if c := meta.FindStatusCondition(top.Status.Conditions, v1alpha1.ConditionReady); c == nil {
		out = append(out, "no Ready")
	} else if c.Reason != "Read" {
		out = append(out, c.Reason+": "+c.Message)
	}
	for _, g := range top.Spec.GPUs {
		if g.MIG {
			words := []string{fmt.Sprintf("GPU %d is partitioned:", g.Index)}
			for _, s := range g.Slices {
				words = append(words, s.Profile)
			}
			out = append(out, strings.Join(words, " "))
		}
		for _, h := range top.Status.GPUHealth {
			if h.ID == g.ID && (!h.Healthy || h.Degraded) {
				out = append(out, fmt.Sprintf("GPU %d healthy=%t degraded=%t: %s", g.Index, h.Healthy, h.Degraded, h.Reason))
			}
		}
	}
	return append(out, n.changes(top)...)
}

// changes describes the differences of the graph from the sound one.
func (n *exporterNode) changes(top *v1alpha1.NodeGPUTopology) []string {
	if n.sound == nil {
		return nil
	}
	var out []string
	for i, row := range top.Spec.LinkRows {
		was := []string{}
		if i < len(n.sound.Spec.LinkRows) {
			was = strings.Fields(n.sound.Spec.LinkRows[i])
		}
		for j, kind := range strings.Fields(row) {
			if j < len(was) && kind != was[j] {
				out = append(out, fmt.Sprintf("link %d-%d %s", i, i+1+j, kind))
			}
		}
	}
	return out
}

// becomesSound waits until the published object is sound, and returns how long that took.
func (n *exporterNode) becomesSound(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	testkit.Eventually(t, waitLimit, n.name+" is published as sound", func(ctx context.Context) (bool, string) {
		top := n.get(ctx)
		said := n.says(top)
		switch {
		case len(said) > 0:
			return false, strings.Join(said, "; ") + "\n" + n.log.tail(2000)
		case n.sound == nil:
			n.sound = top
		case !equality.Semantic.DeepEqual(n.sound.Spec, top.Spec):
			return false, "another spec"
		}
		return true, ""
	})
	return time.Since(begin)
}

// becomes waits until each of these texts is part of a published difference.
func (n *exporterNode) becomes(t *testing.T, want []string) time.Duration {
	t.Helper()
	begin := time.Now()
	testkit.Eventually(t, waitLimit, fmt.Sprintf("%s says %q", n.name, want), func(ctx context.Context) (bool, string) {
		said := n.says(n.get(ctx))
		for _, w := range want {
			if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, w) }) {
				return false, strings.Join(said, "; ") + "\n" + n.log.tail(2000)
			}
		}
		return true, ""
	})
	return time.Since(begin)
}

// logs waits until the log has a text, which is written before or together with the publication.
func (n *exporterNode) logs(t *testing.T, want string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, n.name+" logs "+want, func(context.Context) (bool, string) {
		return strings.Contains(n.log.String(), want), n.log.tail(4000)
	})
}
