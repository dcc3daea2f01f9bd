// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/devcluster"
)

// logSink receives the logs of clusters and their children; set by TestMain.
var logSink io.Writer = io.Discard

// startCluster starts a cluster that ends with the test.
func startCluster(t *testing.T, cfg devcluster.Config) *devcluster.Cluster {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = logSink
	}
	c, err := devcluster.Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	return c
}

// clientFor returns an administrator's client.
func clientFor(t *testing.T, c *devcluster.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// built remembers which programs this process has built.
var built sync.Map

// binary returns the path of a program. One of the project's is built first, so
// that no test runs yesterday's; others only when they are not there. With
// NVTOPO_BIN set the programs of that folder are taken as they are. args are
// those of `go build` without the output, for example
// ("kwok", "-C", "../../tools/kwok", "sigs.k8s.io/kwok/cmd/kwok").
func binary(t *testing.T, name string, args ...string) string {
	t.Helper()
	dir := os.Getenv("NVTOPO_BIN")
	ready := dir != "" || args[0] == "-C"
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, done := built.Load(name); ready || done {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	built.Store(name, true)
	// -C has to stay the first flag of go build.
	build := []string{"build"}
	if len(args) > 1 && args[0] == "-C" {
		build, args = append(build, args[:2]...), args[2:]
	}
	build = append(append(build, "-o", path), args...)
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", build...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out.String())
	}
	return path
}

func kwokBinary(t *testing.T) string {
	t.Helper()
	return binary(t, "kwok", "-C", filepath.Join("..", "..", "tools", "kwok"), "sigs.k8s.io/kwok/cmd/kwok")
}

// eventually polls until ok says true, and fails the test with what it last
// said after the time is over.
func eventually(t *testing.T, limit time.Duration, what string, ok func(ctx context.Context) (bool, string)) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		var done bool
		done, last = ok(ctx)
		return done, nil
	})
	if err != nil {
		t.Fatalf("%s: %v; last seen: %s", what, err, last)
	}
}

// waitPhase waits until a pod is in a phase and returns it.
func waitPhase(t *testing.T, client kubernetes.Interface, namespace, name string, want v1.PodPhase) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	eventually(t, 30*time.Second, "pod "+name+" becomes "+string(want), func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return pod.Status.Phase == want, string(pod.Status.Phase)
	})
	return pod
}
