// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/daemon"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// observable is a program with one metric.
type observable struct{ registry *prometheus.Registry }

func (o observable) Gatherer() prometheus.Gatherer { return o.registry }
func (observable) Healthy() error                  { return nil }

// TestMetricsAuthorization: metrics are served only to clients with the right. It asks the servers
// of all three programs, which ask the real API server with the rights of their shipped accounts.
func TestMetricsAuthorization(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	plainNode(t, l.client, "n1")
	scraper, stranger := account(t, l, "scraper"), account(t, l, "stranger")
	bindCluster(t, l.client, "scraper", "nvtopo-metrics-reader")
	forged := rest.CopyConfig(stranger)
	forged.BearerToken = forged.BearerToken[:len(forged.BearerToken)-8] + "AAAAAAAA"

	s := l.startScheduler(t, profile{name: preBindProfile, write: "PreBind"})
	servers := map[string]string{"scheduler": fmt.Sprintf("127.0.0.1:%d", s.Port())}
	for _, name := range []string{exporterAccount, agentAccount} {
		cfg, err := l.NodeBoundConfig(t.Context(), systemNamespace, name, "n1")
		if err != nil {
			t.Fatal(err)
		}
		servers[name] = serveObservable(t, cfg)
	}
	none := rest.CopyConfig(stranger)
	none.BearerToken = ""
	for name, addr := range servers {
		t.Run(name, func(t *testing.T) {
			// RBAC's own caches may be a moment behind the binding.
			testkit.Eventually(t, waitLimit, "the scraper is served", func(context.Context) (bool, string) {
				code, body := ask(t, scraper, addr, "/metrics")
				return code == http.StatusOK && strings.Contains(body, "go_goroutines"), fmt.Sprintf("%d %.100s", code, body)
			})
			// The stock scheduler lets requests without a token through to authorisation.
			anonymous := http.StatusUnauthorized
			if name == "scheduler" {
				anonymous = http.StatusForbidden
			}
			for _, tc := range []struct {
				who  string
				by   *rest.Config
				path string
				want int
			}{
				{"nobody", none, "/metrics", anonymous},
				{"a forged token", forged, "/metrics", http.StatusUnauthorized},
				{"somebody else", stranger, "/metrics", http.StatusForbidden},
				{"the scraper, elsewhere", scraper, "/debug/pprof/heap", http.StatusForbidden},
				{"a probe", none, "/healthz", http.StatusOK},
			} {
				if code, body := ask(t, tc.by, addr, tc.path); code != tc.want {
					t.Errorf("%s gets %d for %s, want %d: %.200s", tc.who, code, tc.path, tc.want, body)
				}
			}
		})
	}
}

// serveObservable serves metrics as exporter and agent do, and returns the address.
func serveObservable(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	port, err := devcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	e := &daemon.Endpoint{Address: fmt.Sprintf("127.0.0.1:%d", port)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- daemon.ServeWhile(ctx, e, cfg, observable{prometheus.NewRegistry()}, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve metrics: %v", err)
		}
	})
	testkit.Eventually(t, waitLimit, "it listens", func(ctx context.Context) (bool, string) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", e.Address)
		if err != nil {
			return false, err.Error()
		}
		return true, fmt.Sprint(conn.Close())
	})
	return e.Address
}

// ask gets a path of a server with a self-signed certificate.
func ask(t *testing.T, by *rest.Config, addr, path string) (code int, body string) {
	t.Helper()
	cfg := rest.CopyConfig(by)
	cfg.Insecure, cfg.CAData, cfg.CAFile = true, nil, ""
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// account makes a service account in the namespace default and returns a
// configuration with its token.
func account(t *testing.T, l *testEnv, name string) *rest.Config {
	t.Helper()
	sa := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := l.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), sa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg, err := l.ServiceAccountConfig(t.Context(), metav1.NamespaceDefault, name)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// bindCluster gives a service account of the namespace default a cluster role.
func bindCluster(t *testing.T, client kubernetes.Interface, name, role string) {
	t.Helper()
	_, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test:" + name + ":" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceDefault}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
