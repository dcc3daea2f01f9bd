// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"k8s.io/client-go/rest"
)

const (
	auditLogFile = "audit.log"
	// stopTimeout limits the API server's end, which waits for requests that clients outside this process
	// keep open, and for its own goroutines: on an overloaded machine that took more than 38 s. A second
	// Ctrl-C ends the program at once.
	stopTimeout = 3 * time.Minute
)

// Cluster is a running control plane. Its methods may be used concurrently.
type Cluster struct {
	dir   string
	owned bool // the folder is ours to remove
	log   io.Writer
	admin *rest.Config

	etcd        *embed.Etcd
	endpoint    string // of etcd
	creds       *credentials
	cfg         Config
	controllers *controllers
	accounts    *controllers // of service accounts
	kwok        *process
	kueue       *Kueue

	mu              sync.Mutex
	server          *apiserver        // nil while it is down; guarded by mu
	schedulers      []*Scheduler      // guarded by mu
	poolControllers []*PoolController // guarded by mu
	exporters       sync.WaitGroup    // ends after exporterCtx
	stopped         bool              // guarded by mu
	// stopExporter ends the exporter of a node; guarded by mu.
	stopExporter map[string]context.CancelFunc
	simulated    map[string]*simulated // by node; guarded by mu

	exporterCtx    context.Context // the life of the exporters, which is the cluster's
	cancelExporter context.CancelFunc
}

// Start starts a cluster and waits until it serves. ctx limits the start, not the cluster's life: call
// Stop when done with it. After an error there is nothing to stop. Several clusters may run in one
// process, one after another or at once.
func Start(ctx context.Context, cfg Config) (_ *Cluster, err error) {
	dir, owned, err := cfg.prepare()
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, owned: owned, log: cfg.log(), cfg: cfg, stopExporter: map[string]context.CancelFunc{}, simulated: map[string]*simulated{}}
	c.exporterCtx, c.cancelExporter = context.WithCancel(context.WithoutCancel(ctx))
	defer func() { //nolint:contextcheck // what was started has to end although ctx may be over
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()

	if c.etcd, c.endpoint, err = startEtcd(ctx, dir, c.log); err != nil {
		return nil, err
	}
	if c.creds, err = writeCredentials(dir, time.Now()); err != nil {
		return nil, err
	}
	if cfg.Kueue != nil {
		if err := beReadable(); err != nil {
			return nil, err
		}
	}
	if c.server, err = startAPIServer(ctx, dir, c.endpoint, 0, c.creds, &cfg); err != nil {
		return nil, err
	}
	c.admin = c.server.config
	if err := c.WriteKubeconfig(c.Kubeconfig()); err != nil {
		return nil, err
	}
	if err := c.startBeside(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// startBeside starts the programs that run beside the API server.
func (c *Cluster) startBeside(ctx context.Context) (err error) {
	if c.cfg.Controllers {
		if c.controllers, err = startControllers(ctx, c.RESTConfig()); err != nil {
			return err
		}
	}
	if c.cfg.ServiceAccounts {
		if c.accounts, err = startServiceAccounts(ctx, c.RESTConfig()); err != nil {
			return err
		}
	}
	if c.cfg.KwokBinary != "" {
		if c.kwok, err = startKwok(c.cfg.KwokBinary, c.dir, c.Kubeconfig(), c.log); err != nil {
			return err
		}
	}
	if c.cfg.Kueue != nil {
		return c.startKueue(ctx, c.cfg.Kueue)
	}
	return nil
}

// Dir returns the folder in which the cluster keeps all files.
func (c *Cluster) Dir() string { return c.dir }

// AuditLog returns the path of the audit log; see Config.AuditLog.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, auditLogFile) }

// Kubeconfig returns the path of the administrator's kubeconfig in the folder.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// RESTConfig returns a new administrator's configuration without a rate limit.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.admin) }

// Stop ends all programs that the cluster started, children first, and removes the folder if Start
// created it. It may be called more than once.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()

	var errs []error
	for _, p := range c.poolControllers {
		errs = append(errs, p.Kill())
	}
	for _, s := range c.schedulers {
		errs = append(errs, s.Kill())
	}
	if c.kueue != nil {
		errs = append(errs, c.kueue.Kill())
	}
	c.cancelExporter()
	c.exporters.Wait()
	if c.kwok != nil {
		errs = append(errs, c.kwok.kill())
	}
	for _, some := range []*controllers{c.controllers, c.accounts} {
		if some != nil {
			some.stop()
		}
	}
	if c.server != nil {
		errs = append(errs, c.server.stop(ctx))
	}
	if c.etcd != nil {
		c.etcd.Close()
	}
	if c.owned {
		if err := os.RemoveAll(c.dir); err != nil {
			errs = append(errs, fmt.Errorf("remove the cluster's folder: %w", err))
		}
	}
	return errors.Join(errs...)
}
