// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
)

// crashTimeout bounds the end of an API server in process, which waits for all its
// goroutines; on a machine with too much to do it took more than 38 s.
const crashTimeout = 3 * time.Minute

// CrashAPIServer ends the API server and cuts all its connections. Its address refuses clients until
// StartAPIServer; etcd keeps running.
func (c *Cluster) CrashAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil || c.stopped {
		return errors.New("crash the API server: none of this cluster's is running")
	}
	ctx, cancel := context.WithTimeout(ctx, crashTimeout)
	defer cancel()
	server := c.server
	c.server = nil
	return server.crash(ctx)
}

// StartAPIServer starts the API server again, at its old address, and waits until
// it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil || c.creds == nil || c.stopped {
		return errors.New("start the API server: it is not this cluster's to start, or it is running")
	}
	at, err := url.Parse(c.admin.Host)
	if err != nil {
		return fmt.Errorf("the API server's address: %w", err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		return fmt.Errorf("the API server's port: %w", err)
	}
	c.server, err = startAPIServer(ctx, c.dir, c.endpoint, port, c.creds, &c.cfg)
	return err
}

// StartProxy starts a proxy before the API server that injects faults; see
// SchedulerOptions.Server. It is the caller's to close.
func (c *Cluster) StartProxy(ctx context.Context, seed uint64) (*faults.Proxy, error) {
	if c.creds == nil {
		return nil, errors.New("start a proxy: the API server is another process's")
	}
	return faults.Start(ctx, faults.Options{Backend: c.RESTConfig(), Seed: seed, CertFile: c.creds.certFile, KeyFile: c.creds.keyFile})
}
