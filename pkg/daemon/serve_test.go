// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

type fake struct {
	registry *prometheus.Registry
	health   error
}

func (f *fake) Gatherer() prometheus.Gatherer { return f.registry }
func (f *fake) Healthy() error                { return f.health }

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestMetricsAndHealthAreServedWhileRunning(t *testing.T) {
	f := &fake{registry: prometheus.NewRegistry()}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvtopo_test", Help: "x"})
	f.registry.MustRegister(g)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = ServeWhile(ctx, addr, f, func(ctx context.Context) error {
		if code, body := get(t, "http://"+addr+"/metrics"); code != 200 || !strings.Contains(body, "nvtopo_test 0") || !strings.Contains(body, "go_goroutines") {
			t.Errorf("/metrics: %d %.200s", code, body)
		}
		if code, body := get(t, "http://"+addr+"/healthz"); code != 200 || body != "ok\n" {
			t.Errorf("/healthz: %d %q", code, body)
		}
		f.health = errors.New("stuck")
		if code, body := get(t, "http://"+addr+"/healthz"); code != 500 || body != "stuck\n" {
			t.Errorf("/healthz: %d %q", code, body)
		}
		cancel()
		<-ctx.Done()
		return nil
	})
	if err != nil {
		t.Errorf("a clean end returned %v", err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the address is still served after the end")
	}
	failure := errors.New("no")
	if err := ServeWhile(t.Context(), "", f, func(context.Context) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("error %v, want that of the program", err)
	}
}
