// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/exporter"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
)

// Accounts of the programs on a node.
const (
	exporterAccount = "nvtopo-exporter"
	agentAccount    = "nvtopo-node-agent"
)

// heartbeats are the renewals of some honest exporters, timed.
type heartbeats struct {
	nodes  []honestNode
	cancel context.CancelFunc
	group  *errgroup.Group

	mu     sync.Mutex
	took   report.Sample // ms of each renewal that succeeded; guarded by mu
	failed int           // guarded by mu
}

type honestNode struct {
	lease nodelease.Lease
	kube  kubernetes.Interface
}

// startHeartbeats has the last nodes of the cluster renew their exporters' Leases, each
// with a token of its own, so often a second all together, until stop. A renewal that
// is late is not skipped: what it waited for is in the time of those behind it.
func (c *cluster) startHeartbeats(ctx context.Context, nodes int, perSecond float64) (*heartbeats, error) {
	h := &heartbeats{nodes: make([]honestNode, nodes)}
	g, first := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i := range nodes {
		g.Go(func() (err error) {
			h.nodes[i], err = c.honestNode(first, c.nodes-1-i)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err // says what it was about
	}
	ctx, h.cancel = context.WithCancel(ctx)
	h.group, ctx = errgroup.WithContext(ctx)
	interval := time.Duration(float64(time.Second) * float64(nodes) / perSecond)
	for i := range h.nodes {
		h.group.Go(func() error { return h.keep(ctx, &h.nodes[i], interval) })
	}
	return h, nil
}

func (c *cluster) honestNode(ctx context.Context, number int) (honestNode, error) {
	name := fleet.Name(number)
	node, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return honestNode{}, fmt.Errorf("read node %s: %w", name, err)
	}
	config, err := c.NodeBoundConfig(ctx, systemNamespace, exporterAccount, name)
	if err != nil {
		return honestNode{}, err // says what it was about
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return honestNode{}, fmt.Errorf("make a client of %s: %w", name, err)
	}
	return honestNode{kube: kube, lease: nodelease.Lease{
		Namespace: systemNamespace, Name: exporter.LeasePrefix + name, Node: name, NodeUID: node.UID, Manager: exporter.FieldManager,
	}}, nil
}

// keep renews a node's Lease in the way of the exporter until ctx ends.
func (h *heartbeats) keep(ctx context.Context, n *honestNode, interval time.Duration) error {
	due := time.Now().Add(rand.N(interval))
	for ; ; due = due.Add(interval) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(due)):
		}
		err := n.lease.Renew(ctx, n.kube, time.Now())
		if ctx.Err() != nil {
			return nil //nolint:nilerr // cut off by the end
		}
		h.mu.Lock()
		if err == nil {
			h.took = append(h.took, ms(since(due)))
		} else {
			h.failed++
		}
		h.mu.Unlock()
	}
}

// stop ends the renewals, makes the Leases last as long as before, and fills in how
// long renewals took.
func (h *heartbeats) stop(ctx context.Context, c *cluster, out *Cell) error {
	h.cancel()
	err := h.group.Wait()
	out.Renewals, out.RenewalsFailed = len(h.took), h.failed
	if len(h.took) > 0 {
		out.RenewalP50Ms, out.RenewalP99Ms = h.took.Median(), h.took.Quantile(0.99)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	leases := c.kube.CoordinationV1().Leases(systemNamespace)
	long := fmt.Appendf(nil, `{"spec":{"leaseDurationSeconds":%d}}`, fleet.LeaseSeconds)
	for i := range h.nodes {
		g.Go(func() error {
			name := h.nodes[i].lease.Name
			if _, err := leases.Patch(ctx, name, types.MergePatchType, long, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("restore Lease %s: %w", name, err)
			}
			return nil
		})
	}
	return errors.Join(err, g.Wait())
}
