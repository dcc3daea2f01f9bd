// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// patience bounds every wait of a test, on a heavily loaded machine.
const patience = 5 * time.Minute

// testEnv is a running cluster with one real node, for one test.
type testEnv struct {
	*gpunode.Lab
}

// beside lets a test run beside another, each with a node of its own: they wait for most of their time.
func beside(t *testing.T) {
	t.Helper()
	t.Parallel()
}

// startBeside is start for a test that may run beside another.
func startBeside(t *testing.T, cfg gpunode.Config) *testEnv {
	t.Helper()
	beside(t)
	return start(t, cfg)
}

// starting is held while a node starts: a start uses more CPU than it waits.
var starting sync.Mutex

// start starts a node that ends with the test. If the test failed, the ends of the node's logs are
// printed.
func start(t *testing.T, cfg gpunode.Config) *testEnv {
	t.Helper()
	if dir := os.Getenv("NVTOPO_E2E_LOGS"); dir != "" {
		cfg.Dir = filepath.Join(dir, strings.Map(plain, t.Name()))
		if err := os.RemoveAll(cfg.Dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		log, err := os.Create(filepath.Join(cfg.Dir, "control-plane.log"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		cfg.Log = log
	}
	cfg.Bin = testkit.Bin()
	if cfg.Scheduler == nil {
		cfg.Scheduler = fastRetries
	}
	starting.Lock()
	begun := time.Now()
	cfg.Progress = func(what string) { t.Logf("%5.1f s: %s", time.Since(begun).Seconds(), what) }
	l, err := gpunode.Start(t.Context(), cfg)
	starting.Unlock()
	if err != nil {
		t.Fatalf("start a node: %v", err)
	}
	t.Logf("%5.1f s: the node is up", time.Since(begun).Seconds())
	t.Cleanup(func() {
		if t.Failed() {
			printLogs(t, l)
		}
		if err := l.Stop(); err != nil {
			t.Errorf("stop the node: %v", err)
		}
	})
	return &testEnv{l}
}

// plain maps a rune of a test's name to one that the name of a node's folder may contain.
func plain(r rune) rune {
	if r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
		return r
	}
	return '-'
}

// fastRetries shortens the back-off of pods that wait for GPUs; the tests measure the node.
func fastRetries(fields map[string]any) {
	fields["podInitialBackoffSeconds"], fields["podMaxBackoffSeconds"] = 1, 1
}

// printLogs prints the ends of the logs of the tested programs.
func printLogs(t *testing.T, l *gpunode.Lab) {
	t.Helper()
	const tail = 20000 // bytes
	for _, name := range []string{"kubelet", "node-agent", "device-plugin", "exporter"} {
		text, err := os.ReadFile(l.Node.Log(name))
		if err == nil {
			t.Logf("the end of the log of %s:\n%s", name, text[max(0, len(text)-tail):])
		}
	}
}

// create makes a pod.
func (e *testEnv) create(t *testing.T, pod *v1.Pod) *v1.Pod {
	t.Helper()
	got, err := e.Client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create pod %s: %v", pod.Name, err)
	}
	return got
}

// running waits until a pod is Running and returns it.
func (e *testEnv) running(t *testing.T, name string) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	testkit.Eventually(t, patience, "pod "+name+" runs", func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = e.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return pod.Status.Phase == v1.PodRunning, string(pod.Status.Phase) + " " + pod.Status.Reason + " " + pod.Status.Message
	})
	return pod
}

// observe waits until every container of a running pod has reported.
func (e *testEnv) observe(t *testing.T, pod *v1.Pod) []gpunode.Observation {
	t.Helper()
	var out []gpunode.Observation
	testkit.Eventually(t, patience, "the containers of "+pod.Name+" report", func(ctx context.Context) (bool, string) {
		var err error
		out, err = e.Observe(ctx, pod)
		return err == nil, errorText(err)
	})
	return out
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// number reads a number from the environment.
func number(t *testing.T, key string, otherwise int) int {
	t.Helper()
	text := os.Getenv(key)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return n
}
