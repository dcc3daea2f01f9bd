// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

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
		return nil, err //nolint:wrapcheck // says what it was about
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
	config, err := c.NodeBoundConfig(ctx, systemNamespace, account, nodeName(node))
	if err != nil {
		return nil, err //nolint:wrapcheck // says what it was about
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", nodeName(node), err)
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
				patch(ctx, a.admin, i, map[string]any{"status": map[string]any{"gpuHealth": nil, "allocations": nil}}, "status"),
			)
		})
	}
	return rate, errors.Join(err, g.Wait())
}

// publish writes the next object of a hostile node.
func (a *attack) publish(ctx context.Context, node, step int) error {
	t, err := honestTopology(node)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(node), uint64(step)))
	switch node % 4 {
	case 0: // the greatest object there is, of 64 GPUs of which no two links are alike, and with pods of everybody
		noise(t, 64, r)
		for i := range 1000 {
			t.Status.Allocations = append(t.Status.Allocations, v1alpha1.Allocation{
				PodUID: types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", i, step)), Namespace: metav1.NamespaceDefault, Pod: podName(i),
				Container: "main", Resource: v1alpha1.DefaultResource, GPUs: []string{t.Spec.GPUs[i%64].ID}, CPUs: fmt.Sprintf("0-%d", 8191-i%64),
				State: v1alpha1.StateReassigned,
			})
		}
	case 1: // a graph whose tables are the dearest, another each time
		noise(t, 16, r)
	case 2: // what cannot be read, by turns, and health that flaps
		if step%2 == 1 {
			t.Spec.Links[step%len(t.Spec.Links)].Bandwidth = resource.MustParse("1")
		}
		t.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: t.Spec.GPUs[0].ID, Healthy: step%3 == 0, Reason: "none of your business"}}
	case 3: // the GPUs of another node
		victim, err := honestTopology(len(a.nodes) + node)
		if err != nil {
			return err
		}
		for i := range t.Spec.GPUs {
			t.Spec.GPUs[i].ID = victim.Spec.GPUs[i].ID
		}
		t.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: t.Spec.GPUs[step%8].ID}}
	}
	by := a.nodes[node]
	if err := patch(ctx, by.exporter, node, specOf(t)); err != nil {
		return err
	}
	health := map[string]any{"status": map[string]any{"gpuHealth": t.Status.GPUHealth}}
	if err := patch(ctx, by.exporter, node, health, "status"); err != nil || t.Status.Allocations == nil {
		return err
	}
	return patch(ctx, by.agent, node, map[string]any{"status": map[string]any{"allocations": t.Status.Allocations}}, "status")
}

// noise makes a machine of n GPUs with random links.
func noise(t *v1alpha1.NodeGPUTopology, n int, r *rand.Rand) {
	first := t.Spec.GPUs[0]
	t.Spec.GPUs, t.Spec.Links, t.Spec.NICs = nil, nil, nil
	for i := range n {
		g := first
		g.ID, g.Index, g.NUMANode = fmt.Sprintf("GPU-%s-%d", t.Name, i), int32(i), int32(-1)
		g.PCIBusID = ""
		t.Spec.GPUs = append(t.Spec.GPUs, g)
		for j := range i {
			t.Spec.Links = append(t.Spec.Links, v1alpha1.Link{
				A: int32(j), B: int32(i), Class: "NVLink", Lanes: int32(1 + r.IntN(64)),
				Bandwidth: *resource.NewQuantity(1000+r.Int64N(1_000_000_000_000), resource.DecimalSI), LatencyNanoseconds: 1 + r.Int64N(1000),
			})
		}
	}
}

// specOf is a merge patch that replaces what a graph is made of, in whichever form.
func specOf(t *v1alpha1.NodeGPUTopology) map[string]any {
	return map[string]any{"spec": map[string]any{
		"gpus": t.Spec.GPUs, "links": t.Spec.Links, "linkKinds": t.Spec.LinkKinds, "linkRows": t.Spec.LinkRows,
		"numaNodes": t.Spec.NUMANodes, "nics": t.Spec.NICs,
	}}
}

// patch merges fields into a node's object, or into a subresource of it.
func patch(ctx context.Context, by dynamic.Interface, node int, fields map[string]any, sub ...string) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encode the topology of %s: %w", nodeName(node), err)
	}
	_, err = by.Resource(v1alpha1.GroupVersionResource).Patch(ctx, nodeName(node), types.MergePatchType, body, metav1.PatchOptions{}, sub...)
	if err != nil {
		return fmt.Errorf("write the topology of %s: %w", nodeName(node), err)
	}
	return nil
}

// honestTopology is what addNodes published for a node, but for the Node's own ids.
func honestTopology(node int) (*v1alpha1.NodeGPUTopology, error) {
	kinds, err := machineKinds()
	if err != nil {
		return nil, err
	}
	graph, err := kinds[node%len(kinds)].GraphFor(nodeName(node))
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", nodeName(node), err)
	}
	return v1alpha1.FromGraph(nodeName(node), v1alpha1.DefaultResource, graph), nil
}
