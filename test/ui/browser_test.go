// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/cli"
	pages "github.com/nvtopo/nvtopo/ui"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// browser returns the path of npx, and skips the test if the browser tests cannot run here.
func browser(t *testing.T) (npx string) {
	t.Helper()
	if _, built := pages.Files(); !built {
		t.Skip("NOT TESTED: the pages of the web view are not built, see `make ui`")
	}
	npx, err := exec.LookPath("npx")
	if err != nil {
		t.Skip("NOT TESTED: there is no Node.js here")
	}
	if _, err := os.Stat(filepath.Join("..", "..", "ui", "node_modules")); err != nil {
		t.Skip("NOT TESTED: the packages of the browser tests are not installed, see `make test-ui`")
	}
	if chromium := cmp.Or(os.Getenv("CHROMIUM"), "/usr/bin/chromium"); exec.Command(chromium, "--version").Run() != nil {
		t.Skipf("NOT TESTED: %s does not run here", chromium)
	}
	return npx
}

// TestPages runs the browser tests on every page, and then with the keyboard alone on a server that
// requires a token and has its own certificate.
func TestPages(t *testing.T) {
	npx := browser(t)
	l := newTestEnv(t)
	l.fill(t)
	l.pools(t)
	out := cmp.Or(os.Getenv("NVTOPO_UI_OUT"), "../out/ui-cluster")
	browse(t, npx, []string{"NVTOPO_UI_URL=http://" + l.serve(t), "NVTOPO_UI_OUT=" + out})
	browse(t, npx, []string{"NVTOPO_UI_URL=https://" + l.serve(t, "--require-token"), "NVTOPO_UI_TOKEN=" + l.viewer(t)}, "keyboard")
}

// browse runs the browser tests, or those of the named files.
func browse(t *testing.T, npx string, env []string, files ...string) {
	t.Helper()
	e2e := exec.CommandContext(t.Context(), npx, append([]string{"playwright", "test", "--project=pages"}, files...)...)
	e2e.Dir = filepath.Join("..", "..", "ui")
	e2e.Env = append(os.Environ(), env...)
	out, err := e2e.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// serve runs the command until the test ends, and waits until it has read the cluster.
func (e *testEnv) serve(t *testing.T, flags ...string) (address string) {
	t.Helper()
	port, err := devcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address = fmt.Sprintf("127.0.0.1:%d", port)
	ctx, end := context.WithCancel(t.Context())
	cmd := cli.New("nvtopo")
	var said bytes.Buffer
	cmd.SetOut(&said)
	cmd.SetErr(&said)
	cmd.SetArgs(append([]string{"ui", "--kubeconfig", e.Kubeconfig(), "--address", address}, flags...))
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("nvtopo ui: %v", err)
		}
		t.Log(said.String())
	})
	testkit.Eventually(t, patience, "it listens", func(ctx context.Context) (bool, string) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return false, err.Error()
		}
		return true, fmt.Sprint(conn.Close())
	})
	return address
}
