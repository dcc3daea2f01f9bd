// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// Cells in which some nodes publish the worst that the API server takes, otherwise
// like ours-binding's: with the project's priority levels, and without them.
const (
	profileHostile   = "ours-binding-hostile"
	profileUnlimited = "ours-binding-hostile-unlimited"
)

// isHostile says whether nodes are hostile in a profile's cells.
func isHostile(profile string) bool {
	return slices.Contains([]string{profileHostile, profileUnlimited}, strings.TrimSuffix(profile, beforeSuffix))
}

// realLimits are the API server's own defaults, in place of devcluster's greater ones:
// priority levels are shares of them.
var realLimits = []string{"--max-requests-inflight=400", "--max-mutating-requests-inflight=200"}

// attack is what the hostile nodes do during a cell. They have what a stolen node has:
// the tokens of its exporter and of its agent.
type attack struct {
	admin   dynamic.Interface
	nodes   []hostileNode
	cancel  context.CancelFunc
	group   *errgroup.Group
	writes  atomic.Int64
	refused atomic.Int64
	begun   time.Time
}

type hostileNode struct{ exporter, agent dynamic.Interface }

// startAttack turns the first nodes hostile and has them publish until stop. Each waits
// for the answer before it publishes again, and for its turn at the rate of all of them
// together.
func (c *cluster) startAttack(ctx context.Context, nodes int, perSecond float64) (*attack, error) {
	a := &attack{admin: c.dyn, nodes: make([]hostileNode, nodes)}
	tokens, tokensCtx := errgroup.WithContext(ctx)
	tokens.SetLimit(clients)
	for i := range nodes {
		tokens.Go(func() (err error) {
			if a.nodes[i].exporter, err = c.boundClient(tokensCtx, exporterAccount, i); err != nil {
				return err
			}
			a.nodes[i].agent, err = c.boundClient(tokensCtx, agentAccount, i)
			return err
		})
	}
	if err := tokens.Wait(); err != nil {
		return nil, err // says what it was about
	}
	a.begun = time.Now()
	ctx, a.cancel = context.WithCancel(ctx)
	a.group, ctx = errgroup.WithContext(ctx)
	interval := time.Duration(float64(time.Second) * float64(nodes) / perSecond)
	for i := range nodes {
		a.group.Go(func() error { return a.attackFrom(ctx, i, interval) })
	}
	return a, nil
}

// attackFrom publishes for one node until ctx ends.
func (a *attack) attackFrom(ctx context.Context, node int, interval time.Duration) error {
	timer := time.NewTimer(time.Duration(node) * interval / time.Duration(len(a.nodes))) // not all at once
	defer timer.Stop()
	for step := 0; ; step++ {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(interval)
		// The API server may refuse some writes of an overloaded moment: that is its way to resist.
		if a.publish(ctx, node, step) == nil {
			a.writes.Add(1)
		} else if ctx.Err() == nil {
			a.refused.Add(1)
		}
	}
}

// boundClient is a client with a token of an account that is bound to a node.
func (c *cluster) boundClient(ctx context.Context, account string, node int) (dynamic.Interface, error) {
	config, err := c.NodeBoundConfig(ctx, systemNamespace, account, fleet.Name(node))
	if err != nil {
		return nil, err // says what it was about
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", fleet.Name(node), err)
	}
	return client, nil
}

// stop ends the writing, makes the nodes honest again and returns the writes a second.
func (a *attack) stop(ctx context.Context) (float64, error) {
	a.cancel()
	err := a.group.Wait()
	rate := float64(a.writes.Load()) / since(a.begun)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i := range a.nodes {
		g.Go(func() error {
			honest, err := honestTopology(i)
			if err != nil {
				return err
			}
			return errors.Join(
				patch(ctx, a.admin, i, specOf(honest)),
				patch(ctx, a.admin, i, map[string]any{"status": map[string]any{"gpuHealth": nil, "allocations": nil, "kubelet": nil}}, "status"),
			)
		})
	}
	return rate, errors.Join(err, g.Wait())
}

// publish writes the next object of a hostile node.
func (a *attack) publish(ctx context.Context, node, step int) error {
	kind := &publications[node%len(publications)]
	t, err := kind.object(place{node: node, victim: len(a.nodes) + node, step: step})
	if err != nil {
		return fmt.Errorf("make %s: %w", kind.name, err)
	}
	return a.nodes[node].write(ctx, node, t)
}

// write publishes an object as exporter and agent do, each its part.
func (n *hostileNode) write(ctx context.Context, node int, t *v1alpha1.NodeGPUTopology) error {
	if err := patch(ctx, n.exporter, node, specOf(t)); err != nil {
		return err
	}
	health := map[string]any{"status": map[string]any{"gpuHealth": t.Status.GPUHealth}}
	if err := patch(ctx, n.exporter, node, health, "status"); err != nil || t.Status.Allocations == nil {
		return err
	}
	record := map[string]any{"status": map[string]any{"allocations": t.Status.Allocations, "kubelet": t.Status.Kubelet}}
	return patch(ctx, n.agent, node, record, "status")
}

// specOf is a merge patch that replaces what a graph is made of.
func specOf(t *v1alpha1.NodeGPUTopology) map[string]any {
	return map[string]any{"spec": map[string]any{
		"gpus": t.Spec.GPUs, "linkKinds": t.Spec.LinkKinds, "linkRows": t.Spec.LinkRows,
		"numaNodes": t.Spec.NUMANodes, "nics": t.Spec.NICs,
	}}
}

// patch merges fields into a node's object, or into a subresource of it.
func patch(ctx context.Context, by dynamic.Interface, node int, fields map[string]any, sub ...string) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encode the topology of %s: %w", fleet.Name(node), err)
	}
	_, err = by.Resource(v1alpha1.GroupVersionResource).Patch(ctx, fleet.Name(node), types.MergePatchType, body, metav1.PatchOptions{}, sub...)
	if err != nil {
		return fmt.Errorf("write the topology of %s: %w", fleet.Name(node), err)
	}
	return nil
}

// honestTopology is what was published for a node, but for the Node's own ids.
func honestTopology(node int) (*v1alpha1.NodeGPUTopology, error) {
	kinds, err := fleet.Kinds()
	if err != nil {
		return nil, err
	}
	graph, err := kinds[node%len(kinds)].GraphFor(fleet.Name(node))
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", fleet.Name(node), err)
	}
	return v1alpha1.FromGraph(fleet.Name(node), v1alpha1.DefaultResource, graph), nil
}
