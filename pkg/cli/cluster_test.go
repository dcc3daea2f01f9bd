// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

const forbidden = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"forbidden: User \"v\" cannot get","reason":"Forbidden","code":403}`

// cluster serves the NodeGPUTopology of testdata and its node with a live agent and without pods, as an
// API server does, and returns a kubeconfig for it.
func cluster(t *testing.T) string {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(object(t)))
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, map[string][]byte{
		topologyPath + "gpu-node-7": body, "/api/v1/nodes/gpu-node-7": []byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"gpu-node-7"}}`),
		"/api/v1/pods": []byte(`{"kind":"PodList","apiVersion":"v1","items":[]}`),
		leasePath + "agent-gpu-node-7": fmt.Appendf(nil, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"agent-gpu-node-7","namespace":"nvtopo-system",
"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gpu-node-7","uid":"1f5f5d7e-0000-4000-8000-000000000000"}]},"spec":{"leaseDurationSeconds":3600,"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")),
	})
}

const (
	topologyPath = "/apis/topology.nvtopo.dev/v1alpha1/nodegputopologies/"
	leasePath    = "/apis/coordination.k8s.io/v1/namespaces/nvtopo-system/leases/"
)

// clusterOf serves the objects of a node of a cluster.
func clusterOf(t *testing.T, c *viewtest.Cluster, node string) string {
	t.Helper()
	objects := map[string]any{topologyPath + node: c.Topology(node), "/api/v1/pods": &v1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: c.Pods,
	}}
	for i := range c.Nodes {
		objects["/api/v1/nodes/"+c.Nodes[i].Name] = &c.Nodes[i]
	}
	for i := range c.Leases {
		objects[leasePath+c.Leases[i].Name] = &c.Leases[i]
	}
	bodies := map[string][]byte{}
	for path, object := range objects {
		body, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		bodies[path] = body
	}
	return serve(t, bodies)
}

// serve answers requests with objects by their path, and others with a refusal. It returns a kubeconfig.
func serve(t *testing.T, objects map[string][]byte) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, ok := objects[r.URL.Path]
		switch {
		case r.Header.Get("Authorization") == "Bearer secret" && ok:
			_, _ = w.Write(body)
		case r.Header.Get("Authorization") == "Bearer secret" && !strings.HasPrefix(r.URL.Path, "/api/v1/"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not found","reason":"NotFound","code":404}`))
		default:
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(forbidden))
		}
	})
	server := httptest.NewTLSServer(mux) // tokens are not sent in the clear
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: good,
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}],
users: [{name: u, user: {token: secret}}, {name: v, user: {token: wrong}}],
contexts: [{name: good, context: {cluster: c, user: u}}, {name: bad, context: {cluster: c, user: v}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestNodeOfCluster(t *testing.T) {
	config := cluster(t)
	want := mustRun(t, "", "pick", "-n", "1", "-f", "testdata/object.yaml", "-o", "json")
	if got := mustRun(t, "", "pick", "-n", "1", "--node", "gpu-node-7", "--kubeconfig", config, "-o", "json"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	t.Setenv("KUBECONFIG", config)
	if got := mustRun(t, "", "pick", "-n", "1", "--node", "gpu-node-7", "-o", "json"); got != want {
		t.Errorf("KUBECONFIG: got %s, want %s", got, want)
	}
}

// TestHeldGPUs: GPUs held by pods are not offered, whether the node's agent has reported them or not.
func TestHeldGPUs(t *testing.T) {
	c := viewtest.New()
	if err := c.AddNode("gpu-node-7", "dgx1-v100"); err != nil {
		t.Fatal(err)
	}
	c.AddPod("train", "gpu-node-7", 6, 0, 1, 2, 3, 4, 6)
	t.Setenv("KUBECONFIG", clusterOf(t, c, "gpu-node-7"))
	for line, want := range map[string]string{
		"pick -n 2":            "GPUs            5,7\n",
		"pick -n 3":            "2 are free: 5,7",
		"generate docker -n 2": "device=5,7",
		"matrix":               "Held by pods: 0,1,2,3,4,6\n",
	} {
		out, err := run(t, "", append(strings.Fields(line), "--node", "gpu-node-7")...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want) {
			t.Errorf("nvtopo %s: no %q in:\n%s", line, want, out)
		}
	}
}

// TestUnknownHolders: missing knowledge of the GPUs that pods hold is reported, and the result printed all
// the same.
func TestUnknownHolders(t *testing.T) {
	c := viewtest.New()
	if err := c.AddNode("gpu-node-7", "dgx1-v100"); err != nil {
		t.Fatal(err)
	}
	graph, err := json.Marshal(c.Topology("gpu-node-7"))
	if err != nil {
		t.Fatal(err)
	}
	notAllowed := serve(t, map[string][]byte{topologyPath + "gpu-node-7": graph})
	c.AddPod("by-number", "gpu-node-7", 3)
	for name, tc := range map[string]struct{ config, want string }{
		"a pod that holds GPUs by number only": {clusterOf(t, c, "gpu-node-7"), "hold 3 GPUs by number only"},
		"a user who may not read pods":         {notAllowed, "are shown as free: get node: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut strings.Builder
			cmd := New(programName)
			cmd.SetOut(&out)
			cmd.SetErr(&errOut)
			cmd.SetArgs([]string{"pick", "-n", "2", "--node", "gpu-node-7", "--kubeconfig", tc.config})
			if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(errOut.String(), tc.want) || !strings.Contains(out.String(), "GPUs") {
				t.Errorf("%v, said %q, want %q; printed:\n%s", err, errOut.String(), tc.want, out.String())
			}
		})
	}
}

// TestExplainUnreadKinds: explain names the kinds that the account may not read, and explains without
// them. It does not name kinds that are not installed.
func TestExplainUnreadKinds(t *testing.T) {
	config := serve(t, map[string][]byte{
		"/api/v1/pods":  []byte(`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"p","namespace":"default"},"spec":{"schedulerName":"topology-aware-scheduler"}}]}`),
		"/api/v1/nodes": []byte(`{"kind":"NodeList","apiVersion":"v1","items":[]}`),
		"/apis/coordination.k8s.io/v1/namespaces/nvtopo-system/leases": []byte(`{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","items":[]}`),
	})
	var out, errOut strings.Builder
	cmd := New(programName)
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetArgs([]string{"explain", "p", "--kubeconfig", config})
	if err := cmd.ExecuteContext(t.Context()); err != nil || out.Len() == 0 {
		t.Errorf("%v, printed:\n%s", err, out.String())
	}
	if got, want := errOut.String(), "persistentvolumeclaims may not be read, and are taken to be none\n"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

// TestNodeErrors: node errors name node and cause.
func TestNodeErrors(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	config := cluster(t)
	cases := map[string]struct {
		args []string
		want string
	}{
		"a node without an object": {[]string{"--node", "other", "--kubeconfig", config}, "does the exporter run on that node?"},
		"a user who may not":       {[]string{"--node", "gpu-node-7", "--kubeconfig", config, "--context", "bad"}, "forbidden"},
		"a context nobody has":     {[]string{"--node", "gpu-node-7", "--kubeconfig", config, "--context", "none"}, `"none"`},
		"a file that is not there": {[]string{"--node", "gpu-node-7", "--kubeconfig", config + "x"}, config + "x"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, "", append([]string{"matrix"}, tc.args...)...)
			if err == nil || ExitCode(err) != ExitInput {
				t.Fatalf("got %v, exit code %d", err, ExitCode(err))
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--node "+tc.args[1]) {
				t.Errorf("got %q, want the node and %q", err, tc.want)
			}
		})
	}
}

// TestNoKubeconfig: without a kubeconfig every command that reads a cluster prints how to name one.
func TestNoKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, args := range [][]string{{"matrix", "--node", "n"}, {"top"}, {"check"}, {"explain", "p"}, {"pool", "usage", "team"}, {"verify-node", "n"}} {
		_, err := run(t, "", args...)
		if err == nil || !strings.Contains(err.Error(), "name a file with --kubeconfig") || strings.Contains(err.Error(), "KUBERNETES_MASTER") {
			t.Errorf("%v: %v, want how to name a kubeconfig", args, err)
		}
	}
}
