// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// models are the nodes' machines, one after another.
var models = []string{
	"dgx1-v100", "hgx-h200", "a100-pcie-4-bridged", "l40s-8", "dgx2", "h200-nvl-8", "dgx1-v100",
	"hgx-a100-4", "v100-pcie-8", "a100-pcie-4-bridged", "dgx1-v100", "hgx-h200", "h200-nvl-8", "power9-v100-4",
}

// agentless reports whether a node has no node agent: there kubelet's allocations are not reported, and
// kubelet chooses by itself.
func agentless(i int) bool { return i%5 == 3 }

// box is a simulated machine with the programs that run on it while its Node exists. It is the exporter's
// source.
type box struct {
	w       *testEnv
	index   int
	name    string
	model   string
	agent   bool
	kubelet *kubelet

	// turn is held while the node is changed.
	turn               sync.Mutex
	exporter, verifier *runner // guarded by turn; nil while stopped

	published, compared latest // metrics of exporter and agent

	mu     sync.Mutex
	life   int                 // number of machines that had the name; guarded by mu
	base   *nvtopo.Graph       // of the undamaged machine; guarded by mu
	graph  *nvtopo.Graph       // now; guarded by mu
	down   map[[2]int]int      // pair -> number of operations that hold its link down; guarded by mu
	sick   map[int]int         // GPU -> number that hold it unhealthy; guarded by mu
	gone   map[int]int         // GPU -> number that hold it gone; guarded by mu
	events chan exporter.Event // guarded by mu
}

// runner is a goroutine that runs until it is stopped.
type runner struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (r *runner) stop() {
	r.cancel()
	<-r.done
}

func newBox(w *testEnv, i int) (*box, error) {
	b := &box{
		w: w, index: i, name: fmt.Sprintf("node-%02d", i), model: models[i%len(models)], agent: !agentless(i),
		down: map[[2]int]int{}, sick: map[int]int{}, gone: map[int]int{},
	}
	return b, b.replace()
}

// replace replaces the machine by a new one.
func (b *box) replace() error {
	m, err := machine.Lookup(b.model)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.life++
	if b.base, err = m.GraphFor(fmt.Sprintf("%s-%d", b.name, b.life)); err != nil {
		return err
	}
	b.graph, err = b.derive()
	return err
}

// Graph implements exporter.Source.
func (b *box) Graph(context.Context) (*nvtopo.Graph, []exporter.Problem, error) {
	return b.now(), nil, nil
}

// Events implements exporter.Source.
func (b *box) Events(context.Context) <-chan exporter.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = make(chan exporter.Event, 1)
	return b.events
}

func (b *box) now() *nvtopo.Graph {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.graph
}

// change alters the hardware and notifies the exporter and kubelet.
func (b *box) change(ctx context.Context, how func()) error {
	b.mu.Lock()
	how()
	g, err := b.derive()
	if err == nil {
		b.graph = g
	}
	if b.events != nil {
		select {
		case b.events <- exporter.Event{}:
		default: // notified already
		}
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return b.reportDevices(ctx)
}

// derive returns the base graph without the parts that are down, sick or gone. The caller holds mu.
func (b *box) derive() (*nvtopo.Graph, error) {
	at := map[int]int{} // position in base -> in the result
	var gpus []nvtopo.GPU
	for i := range b.base.GPUs {
		if b.gone[i] > 0 {
			continue
		}
		d := b.base.GPUs[i]
		if b.sick[i] > 0 {
			d.Unhealthy = "Xid79"
		}
		at[i] = len(gpus)
		gpus = append(gpus, d)
	}
	links := map[[2]int]nvtopo.Link{}
	for i := range b.base.Len() {
		for j := range i {
			p, ok := at[j]
			q, too := at[i]
			if !ok || !too {
				continue
			}
			l := b.base.Link(j, i)
			if b.down[[2]int{j, i}] > 0 {
				level := max(l.PCIe, nvtopo.PCIePHB)
				l = nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: level}, level, 3, 0, false)
			}
			links[[2]int{p, q}] = l
		}
	}
	return nvtopo.NewGraph(gpus, b.base.NUMANodes, nil, links)
}

// pair and gpu pick the object of an operation.
func (b *box) pair(draw uint64) [2]int {
	n := uint64(b.base.Len())
	i := draw % n
	j := (i + 1 + (draw/n)%(n-1)) % n
	return [2]int{int(min(i, j)), int(max(i, j))}
}

func (b *box) gpu(draw uint64) int { return int(draw % uint64(b.base.Len())) }

// well reports whether the machine is undamaged.
func (b *box) well() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.down)+len(b.sick)+len(b.gone) == 0
}

// reportDevices writes the plugin's number of devices to the node's status, as kubelet does.
func (b *box) reportDevices(ctx context.Context) error {
	return b.w.try(ctx, "report the devices of "+b.name, func(ctx context.Context) error {
		g := b.now()
		n, err := b.w.kube.CoreV1().Nodes().Get(ctx, b.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Capacity[gpuResource] = *resource.NewQuantity(int64(g.Len()), resource.DecimalSI)
		n.Status.Allocatable[gpuResource] = *resource.NewQuantity(int64(g.Healthy().Len()), resource.DecimalSI)
		_, err = b.w.kube.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// join creates the Node and starts the programs on it.
func (b *box) join(ctx context.Context) error {
	var uid types.UID
	err := b.w.try(ctx, "make node "+b.name, func(ctx context.Context) error {
		spec := devcluster.NodeSpec{Name: b.name, Machine: b.model, Labels: labelsIn(b.rack()), Annotations: map[string]string{}}
		n := devcluster.NodeObject(&spec, b.now())
		n.Status.Allocatable[gpuResource] = *resource.NewQuantity(int64(b.now().Healthy().Len()), resource.DecimalSI)
		got, err := b.w.kube.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		if err == nil {
			uid = got.UID
		}
		return exists(err)
	})
	if err != nil {
		return err
	}
	b.w.note("node %s joined with UID %s, machine %d", b.name, uid, b.life)
	if err := b.startExporter(ctx); err != nil {
		return err
	}
	return b.startAgent(ctx)
}

// leave ends the programs on the node and deletes it.
func (b *box) leave(ctx context.Context) error {
	b.stopAgent()
	b.stopExporter()
	b.w.disturb("a node that was deleted")
	return b.w.try(ctx, "delete node "+b.name, func(ctx context.Context) error {
		return gone(b.w.kube.CoreV1().Nodes().Delete(ctx, b.name, metav1.DeleteOptions{}))
	})
}

// collectPods is the pod garbage collector: it deletes by force the pods that are bound to a deleted
// node.
func (b *box) collectPods(ctx context.Context) error {
	return b.w.try(ctx, "collect the pods of "+b.name, func(ctx context.Context) error {
		list, err := b.w.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + b.name})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := b.w.remove(ctx, &list.Items[i], 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// cordon cordons or uncordons the node.
func (b *box) cordon(ctx context.Context, on bool) error {
	return b.w.try(ctx, "cordon "+b.name, func(ctx context.Context) error {
		body := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)
		_, err := b.w.kube.CoreV1().Nodes().Patch(ctx, b.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "soak-cordon"})
		return gone(err)
	})
}

// healthy returns the UUIDs that the device plugin offers kubelet.
func (b *box) healthy() map[string]bool {
	g := b.now()
	out := map[string]bool{}
	for i := range g.Healthy().All() {
		out[g.GPUs[i].UUID] = true
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
