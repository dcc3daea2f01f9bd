// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// hostile is a cell in which some nodes publish the worst that the API server
// takes, as fast as it takes it: the profile is ours-binding's.
const profileHostile = "ours-binding-hostile"

// attackers is how many clients write for the hostile nodes.
const attackers = 4

// attack is what the hostile nodes do during a cell.
type attack struct {
	dyn    dynamic.Interface
	nodes  int
	cancel context.CancelFunc
	group  *errgroup.Group
	writes atomic.Int64
	begun  time.Time
}

// startAttack turns the first nodes hostile, each with its first object published,
// and has them publish new ones until stop.
func startAttack(ctx context.Context, dyn dynamic.Interface, nodes int, perSecond float64) (*attack, error) {
	a := &attack{dyn: dyn, nodes: nodes, begun: time.Now()}
	first, _ := errgroup.WithContext(ctx)
	first.SetLimit(attackers)
	for i := range nodes {
		first.Go(func() error { return a.publish(ctx, i, 0) })
	}
	if err := first.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // says what it was about
	}
	ctx, a.cancel = context.WithCancel(ctx)
	a.group, ctx = errgroup.WithContext(ctx)
	for w := range attackers {
		a.group.Go(func() error {
			ticker := time.NewTicker(time.Duration(float64(time.Second) * attackers / perSecond))
			defer ticker.Stop()
			for step := 1; ; step++ {
				select {
				case <-ctx.Done():
					return nil
				case <-ticker.C:
				}
				// The API server may refuse some writes of an overloaded moment: that is its way to resist.
				if a.publish(ctx, (w+step*attackers)%nodes, step) == nil {
					a.writes.Add(1)
				}
			}
		})
	}
	return a, nil
}

// stop ends the writing, makes the nodes honest again and returns the writes a second.
func (a *attack) stop(ctx context.Context) (float64, error) {
	a.cancel()
	err := a.group.Wait()
	rate := float64(a.writes.Load()) / since(a.begun)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(attackers)
	for i := range a.nodes {
		g.Go(func() error {
			honest, err := honestTopology(i)
			if err != nil {
				return err
			}
			return a.write(ctx, i, &honest.Spec, &v1alpha1.NodeGPUTopologyStatus{})
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
		victim, err := honestTopology(a.nodes + node)
		if err != nil {
			return err
		}
		for i := range t.Spec.GPUs {
			t.Spec.GPUs[i].ID = victim.Spec.GPUs[i].ID
		}
		t.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: t.Spec.GPUs[step%8].ID}}
	}
	return a.write(ctx, node, &t.Spec, &t.Status)
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

// write replaces spec and the two lists of the status.
func (a *attack) write(ctx context.Context, node int, spec *v1alpha1.NodeGPUTopologySpec, status *v1alpha1.NodeGPUTopologyStatus) error {
	topologies := a.dyn.Resource(v1alpha1.GroupVersionResource)
	specFields := map[string]any{"gpus": spec.GPUs, "links": spec.Links, "numaNodes": spec.NUMANodes, "nics": spec.NICs}
	body, err := json.Marshal(map[string]any{"spec": specFields})
	if err != nil {
		return fmt.Errorf("encode the topology of %s: %w", nodeName(node), err)
	}
	if _, err := topologies.Patch(ctx, nodeName(node), types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write the topology of %s: %w", nodeName(node), err)
	}
	statusFields := map[string]any{"gpuHealth": status.GPUHealth, "allocations": status.Allocations}
	if body, err = json.Marshal(map[string]any{"status": statusFields}); err != nil {
		return fmt.Errorf("encode the status of %s: %w", nodeName(node), err)
	}
	if _, err := topologies.Patch(ctx, nodeName(node), types.MergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write the status of %s: %w", nodeName(node), err)
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
