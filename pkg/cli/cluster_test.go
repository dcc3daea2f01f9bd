// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// cluster serves one NodeGPUTopology the way an API server does, and returns a
// kubeconfig for it.
func cluster(t *testing.T) string {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(object(t)))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/topology.nvtopo.dev/v1alpha1/nodegputopologies/gpu-node-7", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"forbidden: User \"v\" cannot get","reason":"Forbidden","code":403}`))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
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
