// SPDX-License-Identifier: Apache-2.0

package kubeletconf

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

const (
	testNode  = "node-a"
	testToken = "secret-of-the-agent"
)

// kubeletServer answers like kubelet with a certificate that it made for itself
// in the given host name, and counts the requests that reached it.
type kubeletServer struct {
	address string
	cert    []byte // PEM
	asked   int
}

func startKubelet(t *testing.T, certName string, answer http.HandlerFunc) *kubeletServer {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey(certName, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	k := &kubeletServer{cert: cert}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.asked++
		if r.URL.Path != "/configz" || r.Header.Get("Authorization") != "Bearer "+testToken {
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
		answer(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	k.address = strings.TrimPrefix(server.URL, "https://")
	return k
}

func restricted(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte(`{"kubeletconfig":{"topologyManagerPolicy":"restricted"}}`))
}

// TestConfigzVerification: configz is asked only of a verified kubelet.
func TestConfigzVerification(t *testing.T) {
	for name, tc := range map[string]struct {
		certName  string
		answer    http.HandlerFunc
		pinned    bool // its certificate lies below the root directory
		named     bool // its certificate is what the operator names
		wantErr   string
		wantAsked int
	}{
		"its own certificate, found below its root directory":   {certName: testNode, answer: restricted, pinned: true, wantAsked: 1},
		"its own certificate, named by the operator":            {certName: testNode, answer: restricted, named: true, wantAsked: 1},
		"a certificate for its address instead of its name":     {certName: "127.0.0.1", answer: restricted, pinned: true, wantAsked: 1},
		"a certificate nobody vouches for never sees the token": {certName: testNode, answer: restricted, wantErr: "signed by unknown authority"},
		"a certificate of another node never sees the token":    {certName: "node-b", answer: restricted, pinned: true, wantErr: "node-b"},
		"the agent may not ask": {
			certName: testNode, pinned: true, wantErr: "needs get on nodes/configz", wantAsked: 1,
			answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Forbidden", http.StatusForbidden) },
		},
		"kubelet sends elsewhere": {
			certName: testNode, pinned: true, wantErr: "302", wantAsked: 1,
			answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		},
		"kubelet answers without end": {
			certName: testNode, pinned: true, wantErr: "longer than", wantAsked: 1,
			answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxConfigBytes+1)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := startKubelet(t, tc.certName, tc.answer)
			cfg := Config{
				Node: testNode, RootDir: t.TempDir(),
				GetNode: func(context.Context) (*v1.Node, error) { return nodeOf(t, "v1.35.8", k.address), nil },
				REST:    &rest.Config{Host: "https://api.example", BearerToken: testToken, TLSClientConfig: rest.TLSClientConfig{CAData: otherAuthority(t)}},
			}
			if tc.pinned {
				write(t, filepath.Join(cfg.RootDir, selfSigned), string(k.cert))
			}
			if tc.named {
				cfg.CAFile = filepath.Join(t.TempDir(), "ca.crt")
				write(t, cfg.CAFile, string(k.cert))
			}
			r, err := New(cfg, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			err = r.refresh(t.Context())
			checkErr(t, err, tc.wantErr)
			if got := r.Current(); (got != nil) != (tc.wantErr == "") || got != nil && got.TopologyManagerPolicy != "restricted" {
				t.Errorf("current %+v after error %v", got, err)
			}
			if k.asked != tc.wantAsked {
				t.Errorf("kubelet saw %d requests, want %d", k.asked, tc.wantAsked)
			}
			if problem := r.Problem(); (problem == nil) != (tc.wantErr == "") {
				t.Errorf("problem %v, want one with %q", problem, tc.wantErr)
			}
		})
	}
}

// TestNodeAddress: the address comes from the Node.
func TestNodeAddress(t *testing.T) {
	node := &v1.Node{Status: v1.NodeStatus{
		Addresses:       []v1.NodeAddress{{Type: v1.NodeHostName, Address: "a"}, {Type: v1.NodeInternalIP, Address: "fd00::1"}},
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: 10250}},
	}}
	got, err := nodeAddress(node)
	if err != nil || got != "[fd00::1]:10250" {
		t.Errorf("address %q, %v, want [fd00::1]:10250", got, err)
	}
	node.Status.Addresses = node.Status.Addresses[:1]
	_, err = nodeAddress(node)
	checkErr(t, err, "no internal address")
}

// otherAuthority is a certificate authority that signed nothing here.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	cert, _, err := certutil.GenerateSelfSignedCertKey("elsewhere", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode(cert); block == nil {
		t.Fatal("no certificate")
	}
	return cert
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}
