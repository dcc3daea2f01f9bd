// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/webui/documents"
)

const uiProfile = "viewed"

// serveUI runs the command as the shipped account, until the test ends, and returns its address.
func (e *testEnv) serveUI(t *testing.T) string {
	t.Helper()
	config, err := e.ServiceAccountConfig(t.Context(), systemNamespace, "nvtopo-ui")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := devcluster.WriteKubeconfigOf(config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	port, err := devcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	ctx, end := context.WithCancel(t.Context())
	var printed, failed bytes.Buffer
	cmd := cli.New("nvtopo")
	cmd.SetOut(&printed)
	cmd.SetErr(&failed)
	cmd.SetArgs([]string{"ui", "--kubeconfig", kubeconfig, "--address", address, "--require-token", "--profile", uiProfile})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("nvtopo ui: %v", err)
		}
		if failed.Len() > 0 {
			t.Errorf("it says of its rights: %s", failed.String())
		}
		if want := "https://" + address + "/"; !strings.Contains(printed.String(), want) {
			t.Errorf("it prints %q, want %s", printed.String(), want)
		}
	})
	return address
}

// streamed is an event of the web view's stream.
type streamed struct{ name, data string }

// follow reads the stream until it ends.
func follow(t *testing.T, by *rest.Config, addr string) <-chan streamed {
	t.Helper()
	cfg := rest.CopyConfig(by)
	cfg.Insecure, cfg.CAData, cfg.CAFile = true, nil, ""
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+"/api/v1/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the stream answers %d", resp.StatusCode)
	}
	events := make(chan streamed, 1000)
	go func() {
		defer close(events)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 2<<20)
		var e streamed
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				e.name = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				e.data = data
				events <- e
			}
		}
	}()
	return events
}

// TestWebViewBills: the shipped account of the web view may read all that a tenant's bill is made of.
func TestWebViewBills(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	for _, folder := range []fs.FS{manifests.UI, manifests.Pools} {
		if err := l.ApplyManifests(t.Context(), folder); err != nil {
			t.Fatal(err)
		}
	}
	viewer := account(t, l, "viewer")
	bindCluster(t, l.client, "viewer", "nvtopo-ui-viewer")
	dyn, err := dynamic.NewForConfig(l.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	tenant := poolExample(t, "tenant-account.yaml")
	for _, o := range []*unstructured.Unstructured{poolExample(t, "price-book.yaml"), tenant} {
		if _, err := objectsOf(dyn, o).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	addr := l.serveUI(t)
	for _, path := range []string{"/pools/bills", "/pools/bills?tenant=" + tenant.GetName(), "/pools/usage?tenant=" + tenant.GetName(), "/pools/hours?tenant=" + tenant.GetName()} {
		testkit.Eventually(t, waitLimit, "the viewer sees "+path, func(context.Context) (bool, string) {
			code, body := askUI(t, viewer, addr, "/api/v1"+path)
			return code == http.StatusOK, fmt.Sprintf("%d %.300s", code, body)
		})
	}
}

// TestWebViewAuthorization runs the web view with the shipped account's rights on a real
// API server: it refuses who may not list what it shows, and a stream follows what changes until
// its token is worth nothing.
func TestWebViewAuthorization(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	if err := l.ApplyManifests(t.Context(), manifests.UI); err != nil {
		t.Fatal(err)
	}
	l.startScheduler(t, profile{name: uiProfile, write: "PreBind"})
	l.node(t, "n1", "hgx-a100-8")
	viewer, stranger := account(t, l, "viewer"), account(t, l, "stranger")
	bindCluster(t, l.client, "viewer", "nvtopo-ui-viewer")
	forged, none := rest.CopyConfig(viewer), rest.CopyConfig(viewer)
	forged.BearerToken = forged.BearerToken[:len(forged.BearerToken)-8] + "AAAAAAAA"
	none.BearerToken = ""
	addr := l.serveUI(t)

	var cluster documents.Cluster
	testkit.Eventually(t, waitLimit, "the viewer sees the node", func(context.Context) (bool, string) {
		code, body := askUI(t, viewer, addr, "/api/v1/cluster")
		return code == http.StatusOK && json.Unmarshal([]byte(body), &cluster) == nil && len(cluster.Nodes) == 1 && cluster.Nodes[0].Free == 8,
			fmt.Sprintf("%d %.300s", code, body)
	})
	if len(cluster.Problems) > 0 {
		t.Errorf("the shipped account cannot read everything: %q", cluster.Problems)
	}
	for name, tc := range map[string]struct {
		by   *rest.Config
		want int
	}{"nobody": {none, 401}, "a forged token": {forged, 401}, "somebody without rights": {stranger, 403}, "the viewer": {viewer, 200}} {
		for _, path := range []string{"/api/v1/cluster", "/api/v1/nodes/n1", "/api/v1/workloads", "/api/v1/gangs", "/api/v1/pools"} {
			if code, body := askUI(t, tc.by, addr, path); code != tc.want {
				t.Errorf("%s gets %d of %s, want %d: %.200s", name, code, path, tc.want, body)
			}
		}
	}

	events := follow(t, viewer, addr)
	l.create(t, gpuPod("live", uiProfile, 2).Obj())
	l.bound(t, "live")
	var used, running bool
	for !used || !running {
		e := nextEvent(t, events)
		used = used || e.name == "nodes" && strings.Contains(e.data, `"name":"n1"`) && strings.Contains(e.data, `"used":2`)
		running = running || e.name == "workloads" && strings.Contains(e.data, `"name":"live"`) && strings.Contains(e.data, `"state":"running"`)
	}
	var history documents.History
	testkit.Eventually(t, waitLimit, "the pod's history has its choice and its event", func(context.Context) (bool, string) {
		code, body := askUI(t, viewer, addr, "/api/v1/history/default/live")
		if code != http.StatusOK || json.Unmarshal([]byte(body), &history) != nil {
			return false, fmt.Sprintf("%d %.300s", code, body)
		}
		has := func(source string) bool {
			return slices.ContainsFunc(history.Entries, func(e documents.Entry) bool { return e.Source == source })
		}
		return has(documents.FromDecision) && has(documents.FromEvent) && len(history.Problems) == 0, body
	})

	if err := l.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Delete(t.Context(), "viewer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		if e := nextEvent(t, events); e.name == "bye" {
			if !strings.Contains(e.data, "the token has expired") {
				t.Errorf("bye %s", e.data)
			}
			break
		}
	}
}

func nextEvent(t *testing.T, events <-chan streamed) streamed {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(waitLimit):
		t.Fatalf("no event within %v", waitLimit)
	}
	return streamed{}
}

// askUI asks again where the server says that it is too early, or that too much was asked.
func askUI(t *testing.T, by *rest.Config, addr, path string) (code int, body string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, path+" answers", func(context.Context) (bool, string) {
		code, body = 0, ""
		if !listens(addr) {
			return false, "it does not listen"
		}
		code, body = ask(t, by, addr, path)
		return code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable, fmt.Sprintf("%d %.200s", code, body)
	})
	return code, body
}

func listens(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
