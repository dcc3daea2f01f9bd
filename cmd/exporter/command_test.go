// SPDX-License-Identifier: Apache-2.0

package main

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

func TestCommandLineMistakesAreRefused(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  string
		want string
	}{
		"no node name":           {args: nil, want: "NODE_NAME is not set"},
		"unknown source":         {args: []string{"--source=smi"}, env: "n1", want: "none of nvml, machine:NAME, file:PATH"},
		"unknown machine":        {args: []string{"--source=machine:abacus"}, env: "n1", want: "abacus"},
		"enforcement of real":    {args: []string{"--assume-enforced"}, env: "n1", want: "does not go with --source=nvml"},
		"model of real":          {args: []string{"--gpu-model=H100"}, env: "n1", want: "does not go with --source=nvml"},
		"an interval of nothing": {args: []string{"--interval=0s"}, env: "n1", want: "--interval must be positive"},
		"a bad node name":        {args: []string{"--source=machine:dgx-h100", "--kubeconfig=testdata/kubeconfig"}, env: "N_1", want: "node name"},
		"a missing kubeconfig":   {args: []string{"--source=machine:dgx-h100", "--kubeconfig=/does/not/exist"}, env: "n1", want: "/does/not/exist"},
		"an argument":            {args: []string{"now"}, env: "n1", want: "unknown command"},
		"an address in use":      {args: []string{"--source=machine:dgx-h100", "--kubeconfig=testdata/kubeconfig", "--metrics-address=" + taken(t)}, env: "n1", want: "serve metrics"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand(func(string) string { return tc.env })
			cmd.SetArgs(tc.args)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

// taken returns an address that somebody listens on.
func taken(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}

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
	err = serveWhile(ctx, addr, f, func(ctx context.Context) error {
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
	if err := serveWhile(t.Context(), "", f, func(context.Context) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("error %v, want that of the program", err)
	}
}
