// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
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

func newFake() *fake {
	f := &fake{registry: prometheus.NewRegistry()}
	f.registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "nvtopo_test", Help: "x"}))
	return f
}

// freeAddress returns a loopback address that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

// TestMetricsAndHealth: metrics and health are served while running.
func TestMetricsAndHealth(t *testing.T) {
	cluster := newReviewServer(t)
	tests := map[string]struct {
		endpoint        Endpoint
		scheme          string
		wantWithoutAuth int
	}{
		"over HTTPS, to those who may":        {Endpoint{}, "https", http.StatusUnauthorized},
		"over HTTP, to everybody, if so told": {Endpoint{Insecure: true}, "http", http.StatusOK},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			tc.endpoint.Address = freeAddress(t)
			base := tc.scheme + "://" + tc.endpoint.Address
			ctx, cancel := context.WithCancel(t.Context())
			err := ServeWhile(ctx, &tc.endpoint, cluster.config(), f, func(ctx context.Context) error {
				if code, body := get(t, base+"/metrics", "reader"); code != 200 || !strings.Contains(body, "nvtopo_test 0") || !strings.Contains(body, "go_goroutines") {
					t.Errorf("/metrics: %d %.200s", code, body)
				}
				if code, body := get(t, base+"/metrics", ""); code != tc.wantWithoutAuth {
					t.Errorf("/metrics without a token: %d %.200s, want %d", code, body, tc.wantWithoutAuth)
				}
				if code, body := get(t, base+"/healthz", ""); code != 200 || body != "ok\n" {
					t.Errorf("/healthz: %d %q", code, body)
				}
				f.health = errors.New("stuck")
				cancel()
				<-ctx.Done()
				// Until run has ended, somebody may want to know why it does not.
				if code, body := get(t, base+"/healthz", ""); code != 500 || body != "stuck\n" {
					t.Errorf("/healthz: %d %q", code, body)
				}
				return nil
			})
			if err != nil {
				t.Errorf("a clean end returned %v", err)
			}
			if _, err := net.Dial("tcp", tc.endpoint.Address); err == nil {
				t.Error("the address is still served after the end")
			}
		})
	}
}

// TestEndpointErrors: endpoints that cannot be served are errors.
func TestEndpointErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	failure := errors.New("of the program itself")
	tests := map[string]struct {
		endpoint Endpoint
		want     string
	}{
		"an address in use":                       {Endpoint{Address: taken.Addr().String()}, "serve metrics: listen"},
		"plain HTTP for all the world":            {Endpoint{Address: ":0", Insecure: true}, "--metrics-insecure is for a loopback address, not :0"},
		"plain HTTP with a certificate":           {Endpoint{Address: "127.0.0.1:0", Insecure: true, CertFile: "x"}, "cannot be used with a certificate"},
		"a certificate that is not there":         {Endpoint{Address: "127.0.0.1:0", CertFile: "/does/not/exist", KeyFile: "/does/not/exist"}, "/does/not/exist"},
		"a certificate without a key":             {Endpoint{Address: "127.0.0.1:0", CertFile: "/does/not/exist"}, "missing filename"},
		"none, and the program ends with a fault": {Endpoint{}, failure.Error()},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := ServeWhile(t.Context(), &tc.endpoint, newReviewServer(t).config(), newFake(), func(ctx context.Context) error {
				if tc.endpoint.Address == "" {
					return failure
				}
				<-ctx.Done()
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want it to contain %q", err, tc.want)
			}
		})
	}
}
