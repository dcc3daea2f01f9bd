// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// poolControllerStart bounds the wait for the pool controller to serve.
const poolControllerStart = 3 * time.Minute

// PoolControllerOptions configures the pool controller.
type PoolControllerOptions struct {
	Binary         string    // the program, for example bin/nvtopo-pool-controller
	ServiceAccount string    // "namespace/name"; empty means the administrator
	Args           []string  // further flags
	Server         string    // URL that it uses as the API server, for example a proxy; empty means the API server
	Log            io.Writer // receives its output; nil means the cluster's
}

// PoolController is a pool controller running as a child process.
type PoolController struct {
	opts PoolControllerOptions
	args []string
	dir  string
	url  string // of its metrics server

	mu   sync.Mutex
	proc *process // guarded by mu
}

// StartPoolController starts the pool controller and waits until it serves /healthz.
func (c *Cluster) StartPoolController(ctx context.Context, opts PoolControllerOptions) (*PoolController, error) {
	dir, err := os.MkdirTemp(c.dir, "pool-controller-")
	if err != nil {
		return nil, fmt.Errorf("make the pool controller's folder: %w", err)
	}
	if opts.Log == nil {
		opts.Log = c.log
	}
	if opts.Binary, err = filepath.Abs(opts.Binary); err != nil {
		return nil, fmt.Errorf("the pool controller's path: %w", err)
	}
	cfg := c.RESTConfig()
	if opts.ServiceAccount != "" {
		namespace, name, ok := strings.Cut(opts.ServiceAccount, "/")
		if !ok {
			return nil, errors.New("the pool controller's service account is not namespace/name: " + opts.ServiceAccount)
		}
		if cfg, err = c.ServiceAccountConfig(ctx, namespace, name); err != nil {
			return nil, err
		}
	}
	if opts.Server != "" {
		cfg = rest.CopyConfig(cfg)
		cfg.Host = opts.Server
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := WriteKubeconfigOf(cfg, kubeconfig); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p := &PoolController{opts: opts, dir: dir, url: "http://" + address}
	p.args = append([]string{"--kubeconfig=" + kubeconfig, "--metrics-address=" + address, "--metrics-insecure"}, opts.Args...)
	c.mu.Lock()
	stopped := c.stopped
	if !stopped {
		c.poolControllers = append(c.poolControllers, p)
	}
	c.mu.Unlock()
	if stopped {
		return nil, errors.New("start the pool controller: the cluster is stopped")
	}
	return p, p.Restart(ctx)
}

// Restart starts the controller again after Kill, and waits until it serves /healthz.
func (p *PoolController) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc != nil && p.proc.alive() {
		return errors.New("start the pool controller: it is running")
	}
	proc, err := startProcess("the pool controller", p.opts.Binary, p.args, p.dir, p.opts.Log)
	if err != nil {
		return err
	}
	p.proc = proc
	return poll(ctx, poolControllerStart, "the pool controller serves", func(ctx context.Context) error {
		if !proc.alive() {
			return fmt.Errorf("it ended: %w", errOrExit(proc.err))
		}
		return answersOK(ctx, p.url+"/healthz")
	})
}

// MetricsURL returns the URL of its metrics.
func (p *PoolController) MetricsURL() string { return p.url + "/metrics" }

// Alive reports whether the process runs.
func (p *PoolController) Alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc != nil && p.proc.alive()
}

// PID returns the process ID of the last start, 0 before the first.
func (p *PoolController) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return 0
	}
	return p.proc.pid
}

// Kill ends the controller with SIGKILL and waits until it is gone.
func (p *PoolController) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return nil
	}
	return p.proc.kill()
}
