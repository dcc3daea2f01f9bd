// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	readyPoll = 10 * time.Millisecond
	// readyLimit is ample for reading some thousand nodes.
	readyLimit = 2 * time.Minute
)

// schedulerClient talks to a scheduler's own HTTPS server.
type schedulerClient struct {
	client *http.Client
	base   string
}

// newSchedulerClient presents the administrator's certificate, which the
// scheduler accepts because the API server does. The scheduler's own
// certificate is self-signed.
func newSchedulerClient(admin *rest.Config, port int) (*schedulerClient, error) {
	cert, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		return nil, fmt.Errorf("read the administrator's certificate: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true} // loopback, a child of ours
	return &schedulerClient{
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: config}},
		base:   "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
	}, nil
}

func (c *schedulerClient) close() { c.client.CloseIdleConnections() }

// waitReady waits until the scheduler has seen every object and schedules, and
// returns when that was, to within the interval of polling.
func (c *schedulerClient) waitReady(ctx context.Context) (time.Time, error) {
	if _, err := c.wait(ctx, "/readyz"); err != nil {
		return time.Time{}, err
	}
	return time.Now(), nil
}

// storeCPUProfile has the scheduler record its CPU profile and stores it in a file.
func (c *schedulerClient) storeCPUProfile(ctx context.Context, length time.Duration, file string) error {
	return c.store(ctx, profilePath+"?seconds="+wholeSeconds(length), file)
}

// storeCPUProfile does the same with the process of API server and etcd.
func (c *cluster) storeCPUProfile(ctx context.Context, length time.Duration, file string) error {
	body, err := c.kube.Discovery().RESTClient().Get().AbsPath(profilePath).Param("seconds", wholeSeconds(length)).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("record the API server's CPU profile: %w", err)
	}
	return write(file, body)
}

const profilePath = "/debug/pprof/profile"

// wholeSeconds is a length as profiles take it.
func wholeSeconds(length time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(length.Seconds()))))
}

// storeHeapProfile stores what the scheduler's memory holds, garbage excluded.
func (c *schedulerClient) storeHeapProfile(ctx context.Context, file string) error {
	return c.store(ctx, "/debug/pprof/heap?gc=1", file)
}

func (c *schedulerClient) store(ctx context.Context, path, file string) error {
	body, err := c.wait(ctx, path)
	if err != nil {
		return err
	}
	return write(file, body)
}

func write(file string, body []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make the folder of a profile: %w", err)
	}
	if err := os.WriteFile(file, body, 0o644); err != nil {
		return fmt.Errorf("store a profile: %w", err)
	}
	return nil
}

// wait is get for a page that a starting scheduler refuses: it has yet to read
// by which authority clients' certificates are signed, or its caches.
func (c *schedulerClient) wait(ctx context.Context, path string) ([]byte, error) {
	var body []byte
	var last error
	err := wait.PollUntilContextTimeout(ctx, readyPoll, readyLimit, true, func(ctx context.Context) (bool, error) {
		body, last = c.get(ctx, path)
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the scheduler: %w", errors.Join(err, last))
	}
	return body, nil
}

// get returns the body of a page.
func (c *schedulerClient) get(ctx context.Context, path string) (_ []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the scheduler: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the scheduler's %s: %s: %.200s", path, resp.Status, body)
	}
	return body, nil
}
