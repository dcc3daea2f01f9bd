// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// Service accounts of the programs on a node.
const (
	exporterAccount = "nvtopo-exporter"
	agentAccount    = "nvtopo-node-agent"
)

// realLimits are the API server's own defaults, in place of devcluster's greater ones: priority levels
// are shares of them.
var realLimits = []string{"--max-requests-inflight=400", "--max-mutating-requests-inflight=200"}

// surround starts the background load of a cell with hostile nodes; stop ends it, also after an error.
func (c *cluster) surround(ctx context.Context, p *profile, out *Cell) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, f := range slices.Backward(stops) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if !c.o.hostile() {
		return stop, nil
	}
	if p.unlimited {
		stops = append(stops, func() error { return c.InstallManifests(ctx) })
		if err := c.removePriorityLevels(ctx); err != nil {
			return stop, err
		}
	}
	if p.hostile {
		end, err := c.startAttack(ctx, out)
		if err != nil {
			return stop, fmt.Errorf("turn %d nodes hostile: %w", c.o.Hostile, err)
		}
		stops = append(stops, end)
	}
	end, err := c.startHeartbeats(ctx, out)
	if err != nil {
		return stop, err
	}
	stops = append(stops, end)
	return stop, nil
}

// removePriorityLevels deletes the project's FlowSchemas and priority levels.
func (c *cluster) removePriorityLevels(ctx context.Context) error {
	schemas, levels, err := manifests.FlowControl()
	if err != nil {
		return err // its errors name their cause
	}
	for _, s := range schemas {
		if err := c.kube.FlowcontrolV1().FlowSchemas().Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("remove FlowSchema %s: %w", s.Name, err)
		}
	}
	for _, l := range levels {
		if err := c.kube.FlowcontrolV1().PriorityLevelConfigurations().Delete(ctx, l.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("remove PriorityLevelConfiguration %s: %w", l.Name, err)
		}
	}
	return nil
}

// atPace calls act for each of n nodes in steps, spread over the nodes, perSecond times a second in
// total, until stop. A late step is not skipped; due is the time at which it was due.
func atPace(ctx context.Context, n int, perSecond float64, act func(ctx context.Context, node, step int, due time.Time)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	interval := time.Duration(float64(time.Second) * float64(n) / perSecond)
	var all sync.WaitGroup
	for node := range n {
		all.Go(func() {
			due := time.Now().Add(time.Duration(node) * interval / time.Duration(n))
			for step := 0; pause(ctx, time.Until(due)) == nil; step++ {
				act(ctx, node, step, due)
				due = due.Add(interval)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// hostileNode has the credentials of a stolen node: the tokens of its exporter and of its agent.
type hostileNode struct{ exporter, agent dynamic.Interface }

// boundClient returns a client with a token of an account that is bound to a node.
func (c *cluster) boundClient(ctx context.Context, account string, node int) (dynamic.Interface, error) {
	config, err := c.NodeBoundConfig(ctx, release.Namespace, account, fleet.Name(node))
	if err != nil {
		return nil, err // its errors name their cause
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", fleet.Name(node), err)
	}
	return client, nil
}

// startAttack makes the first nodes publish hostile objects until stop. Each waits for the response
// before it publishes again, and for its turn at the common rate. After stop the nodes are honest
// again.
func (c *cluster) startAttack(ctx context.Context, out *Cell) (stop func() error, err error) {
	nodes := make([]hostileNode, c.o.Hostile)
	err = parallel(ctx, len(nodes), func(ctx context.Context, i int) (err error) {
		if nodes[i].exporter, err = c.boundClient(ctx, exporterAccount, i); err == nil {
			nodes[i].agent, err = c.boundClient(ctx, agentAccount, i)
		}
		return err
	})
	if err != nil {
		return nil, err // its errors name their cause
	}
	var writes, refused atomic.Int64
	begun := time.Now()
	end := atPace(ctx, len(nodes), c.o.Writes, func(ctx context.Context, node, step int, _ time.Time) {
		kind := &publications[node%len(publications)]
		t, err := kind.object(place{node: node, victim: len(nodes) + node, step: step})
		if err == nil {
			err = nodes[node].write(ctx, node, t)
		}
		// The API server may refuse some writes while overloaded: that is how it resists.
		if err == nil {
			writes.Add(1)
		} else if ctx.Err() == nil {
			refused.Add(1)
		}
	})
	return func() error {
		end()
		out.HostileWrites, out.HostileRefused = float64(writes.Load())/since(begun), refused.Load()
		return parallel(ctx, len(nodes), func(ctx context.Context, i int) error {
			honest, err := honestTopology(i)
			if err != nil {
				return err
			}
			return errors.Join(
				patch(ctx, c.dyn, i, specOf(honest)),
				patch(ctx, c.dyn, i, map[string]any{"status": map[string]any{"gpuHealth": nil, "allocations": nil, "kubelet": nil}}, "status"),
			)
		})
	}, nil
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

// specOf returns a merge patch that replaces the parts of a graph.
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

// honestNode renews its exporter's Lease with a token of its own.
type honestNode struct {
	lease nodelease.Lease
	kube  kubernetes.Interface
}

func (c *cluster) honestNode(ctx context.Context, number int) (*honestNode, error) {
	name := fleet.Name(number)
	node, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	config, err := c.NodeBoundConfig(ctx, release.Namespace, exporterAccount, name)
	if err != nil {
		return nil, err // its errors name their cause
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", name, err)
	}
	return &honestNode{kube: kube, lease: nodelease.Lease{
		Namespace: release.Namespace, Name: exporter.LeasePrefix + name, Node: name, NodeUID: node.UID, Manager: exporter.FieldManager,
	}}, nil
}

// startHeartbeats makes the last nodes of the cluster renew their exporters' Leases until stop. A late
// renewal is not skipped: its delay is included in the time of those behind it. After stop the Leases
// last as long as before.
func (c *cluster) startHeartbeats(ctx context.Context, out *Cell) (stop func() error, err error) {
	nodes := make([]*honestNode, c.o.Hostile)
	err = parallel(ctx, len(nodes), func(ctx context.Context, i int) (err error) {
		nodes[i], err = c.honestNode(ctx, c.nodes-1-i)
		return err
	})
	if err != nil {
		return nil, err // its errors name their cause
	}
	var mu sync.Mutex
	var took report.Sample // ms of each renewal that succeeded; guarded by mu
	end := atPace(ctx, len(nodes), c.o.Renewals, func(ctx context.Context, node, _ int, due time.Time) {
		err := nodes[node].lease.Renew(ctx, nodes[node].kube, time.Now())
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ctx.Err() != nil: // cut off by the end
		case err == nil:
			took = append(took, ms(since(due)))
		default:
			out.RenewalsFailed++
		}
	})
	return func() error {
		end()
		if out.Renewals = len(took); len(took) > 0 {
			out.RenewalP50Ms, out.RenewalP99Ms = took.Median(), took.Quantile(0.99)
		}
		long := fmt.Appendf(nil, `{"spec":{"leaseDurationSeconds":%d}}`, fleet.LeaseSeconds)
		return parallel(ctx, len(nodes), func(ctx context.Context, i int) error {
			name := nodes[i].lease.Name
			if _, err := c.kube.CoordinationV1().Leases(release.Namespace).Patch(ctx, name, types.MergePatchType, long, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("restore Lease %s: %w", name, err)
			}
			return nil
		})
	}, nil
}
