// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/pkg/node/exporter"
)

// publishers limits how many exporters publish for the first time at once.
const publishers = 8

// ExporterOptions configures how the simulated nodes publish their topology.
type ExporterOptions struct {
	// ServiceAccount ("namespace/name") is the account of the token, bound to its node, that each exporter
	// uses; empty means the administrator.
	ServiceAccount string
	// Interval between two readings; the exporter's default when zero.
	Interval time.Duration
	// Unenforced leaves out the condition and Lease that declare that containers get the chosen GPUs.
	Unenforced bool
}

// RunExporters publishes the topology of the nodes, which must exist, and
// returns when all are published. The exporters run until their node is removed or
// the cluster stops.
func (c *Cluster) RunExporters(ctx context.Context, nodes []NodeSpec, opts ExporterOptions) error {
	if err := c.standInFor(ctx, opts); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(publishers)
	for i := range nodes {
		g.Go(func() error { return c.runExporter(ctx, &nodes[i], opts) })
	}
	return g.Wait()
}

// standInFor gives the exporters' account the rights to stand in for node agents.
func (c *Cluster) standInFor(ctx context.Context, opts ExporterOptions) error {
	if opts.ServiceAccount == "" || opts.Unenforced {
		return nil
	}
	namespace, name, err := splitAccount(opts.ServiceAccount)
	if err != nil {
		return err
	}
	return c.standIn(ctx, namespace, name)
}

func (c *Cluster) runExporter(ctx context.Context, node *NodeSpec, opts ExporterOptions) error {
	sim, err := newSimulated(node, opts)
	if err != nil {
		return err
	}
	return c.startExporter(ctx, sim, true)
}

// startExporter runs the exporter of a simulated node, after it has published the graph if now.
func (c *Cluster) startExporter(ctx context.Context, sim *simulated, now bool) error { //nolint:contextcheck // the exporter outlives the start
	node, opts := &sim.spec, sim.opts
	cfg, err := c.exporterConfig(ctx, node.Name, opts.ServiceAccount)
	if err != nil {
		return err
	}
	cfg.Wrap(sim.withoutAgent)
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make the exporter's client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make the exporter's client: %w", err)
	}
	e, err := exporter.New(exporter.Config{
		NodeName: node.Name, Namespace: systemNamespace, Resource: node.Resource(), Interval: opts.Interval,
		AssumeEnforced: !opts.Unenforced,
	}, sim, kube, dyn)
	if err != nil {
		return fmt.Errorf("node %s: %w", node.Name, err)
	}
	if now {
		if err := e.PublishOnce(ctx); err != nil {
			return fmt.Errorf("publish node %s: %w", node.Name, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("publish a node: the cluster is stopped")
	}
	running, stop := context.WithCancel(c.exporterCtx)
	c.stopExporter[node.Name], c.simulated[node.Name] = stop, sim
	c.exporters.Go(func() {
		if err := e.Run(running); err != nil {
			fmt.Fprintf(c.log, "exporter of %s: %v\n", node.Name, err)
		}
	})
	return nil
}

// StopExporters ends the exporters of nodes. Their published objects stay, and go stale.
func (c *Cluster) StopExporters(nodes ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range nodes {
		if stop := c.stopExporter[name]; stop != nil {
			stop()
			delete(c.stopExporter, name)
		}
	}
}

// ExporterRuns reports whether the exporter of a node runs.
func (c *Cluster) ExporterRuns(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopExporter[node] != nil
}

func (c *Cluster) exporterConfig(ctx context.Context, node, account string) (*rest.Config, error) {
	if account == "" {
		return c.RESTConfig(), nil
	}
	namespace, name, err := splitAccount(account)
	if err != nil {
		return nil, err
	}
	return c.NodeBoundConfig(ctx, namespace, name, node)
}

func splitAccount(account string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok {
		return "", "", errors.New("the exporter's service account is not namespace/name: " + account)
	}
	return namespace, name, nil
}
