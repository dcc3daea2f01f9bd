// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// followInterval is the period of checking faults and workloads.
const followInterval = 500 * time.Millisecond

// Follow makes simulated nodes fail and heal according to their annotation ([AnnotationFails]), and runs
// programs while the workloads of the chart exist, until ctx ends. Failures are logged.
func (c *Cluster) Follow(ctx context.Context, chart *ChartOptions) error {
	kube, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	f := &follower{cluster: c, kube: kube, nodes: map[string]string{}}
	if chart != nil {
		f.scheduler = newChartScheduler(c, chart)
	}
	for {
		if err := f.look(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(c.log, "follow faults and workloads:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followInterval):
		}
	}
}

// follower holds the state that it has carried out.
type follower struct {
	cluster   *Cluster
	kube      kubernetes.Interface
	scheduler *chartScheduler   // nil where the programs are no workloads
	nodes     map[string]string // name -> faults and programs, as carried out
}

// look starts and ends programs, and changes nodes, to match the chart and the annotations.
func (f *follower) look(ctx context.Context) error {
	programs := &programs{exporter: true, agent: true}
	if f.scheduler != nil {
		var err error
		if programs, err = installedPrograms(ctx, f.kube); err != nil {
			return err
		}
		if err := f.scheduler.follow(ctx, programs.config); err != nil {
			return err
		}
	}
	nodes, err := f.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		want := fmt.Sprintf("%s exporter=%t agent=%t", n.Annotations[AnnotationFails], programs.exporter, programs.agent)
		if f.nodes[n.Name] == want {
			continue
		}
		if err := f.node(ctx, n, programs); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		f.nodes[n.Name] = want
	}
	return nil
}

// node sets the programs of a node, the health of its GPUs and its kubelet.
func (f *follower) node(ctx context.Context, n *v1.Node, p *programs) error {
	faults, err := ParseFaults(n.Annotations[AnnotationFails])
	if err != nil {
		return err
	}
	c := f.cluster
	c.mu.Lock()
	sim, runs := c.simulated[n.Name], c.stopExporter[n.Name] != nil
	c.mu.Unlock()
	if sim == nil {
		return nil // a node that this process does not simulate
	}
	alive := *faults
	alive.Agent = faults.Agent || !p.agent
	healthy, err := sim.set(&alive)
	if err != nil {
		return err
	}
	if err := f.kubelet(ctx, n, sim.spec.Resource(), healthy, faults.Node); err != nil {
		return err
	}
	switch wanted := p.exporter && !faults.Exporter && !faults.Node; {
	case wanted && !runs:
		sim.opts.Unenforced = !p.agent
		if err := c.standInFor(ctx, sim.opts); err != nil { // an uninstall has taken it away
			return err
		}
		return c.startExporter(ctx, sim, false)
	case !wanted && runs:
		c.StopExporters(n.Name)
	}
	return nil
}

// unreachable are the taints that the node lifecycle controller gives to a node whose kubelet is silent.
var unreachable = []v1.Taint{
	{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule}, {Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute},
}

// kubelet writes the status that kubelet and the node lifecycle controller would: the number of GPUs, and
// whether the node is ready.
func (f *follower) kubelet(ctx context.Context, n *v1.Node, resource string, healthy int, silent bool) error {
	now := metav1.Now()
	ready := v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if silent {
		ready.Status, ready.Reason, ready.Message = v1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	}
	status := map[string]any{"allocatable": map[string]any{resource: strconv.Itoa(healthy)}}
	if was := slices.IndexFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady }); was < 0 || n.Status.Conditions[was].Status != ready.Status {
		status["conditions"] = []v1.NodeCondition{ready}
	}
	if err := f.patch(ctx, n.Name, map[string]any{"status": status}, "status"); err != nil {
		return err
	}
	taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t v1.Taint) bool { return t.Key == v1.TaintNodeUnreachable })
	if silent {
		for _, t := range unreachable {
			t.TimeAdded = &now
			taints = append(taints, t)
		}
	}
	if !silent && len(taints) == len(n.Spec.Taints) {
		return nil
	}
	return f.patch(ctx, n.Name, map[string]any{"spec": map[string]any{"taints": taints}})
}

func (f *follower) patch(ctx context.Context, node string, patch any, sub ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	if _, err := f.kube.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager}, sub...); err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	return nil
}
