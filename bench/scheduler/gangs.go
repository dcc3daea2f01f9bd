// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

const (
	// singlesOfGangs is the workload of single pods that ask for what members of gangs do.
	singlesOfGangs = "four"
	// lateSingles are as many of them as beside waiting gangs, and measured in the same window.
	lateSingles = "four-late"
	// gangGPUs are a member's.
	gangGPUs = 4
	// waitingMembers of a waiting gang want to be on one node, which holds one fewer at most.
	waitingMembers = fleet.GPUs/gangGPUs + 1
	plansName      = "scheduler_nvtopo_gang_plan_duration_seconds"
)

// makeFabric says that labels of nodes name racks, which the nodes are made with.
func makeFabric(ctx context.Context, dyn dynamic.Interface) error {
	fabric := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "ClusterTopology", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"levels": []any{map[string]any{"name": "rack", "nodeLabel": rackLabel}}},
	}}
	if _, err := dyn.Resource(v1alpha1.ClusterTopologyGVR).Create(ctx, fabric, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the ClusterTopology: %w", err)
	}
	return nil
}

// rackLabel names the rack of a node.
const rackLabel = "topology.kubernetes.io/rack"

// inGangs makes pods the members of gangs of one size, but for the first pod: its binding begins the
// window, so that the plan of the first gang is in it.
func inGangs(pods []*v1.Pod, size int) {
	for i, pod := range pods[1:] {
		pod.Annotations = map[string]string{gangrequest.GangKey: fmt.Sprintf("gang-%05d", i/size), gangrequest.GangSizeKey: strconv.Itoa(size)}
	}
}

// waitingPods are those that wait beside the workload's: members of gangs that no node can hold,
// though each has the GPUs for some of them, or single pods that ask for more GPUs than a node has.
// They are urgent, so that all are tried before the first of the other pods.
func (w *workload) waitingPods(scheduler string) []*v1.Pod {
	if !w.alone && scheduler == v1.DefaultSchedulerName { // it would place members one by one
		return nil
	}
	pods := make([]*v1.Pod, 0, w.waiting*waitingMembers)
	for i := range w.waiting * waitingMembers {
		gpus := gangGPUs
		if w.alone {
			gpus = fleet.GPUs + 1
		}
		pod := newPod(i, gpus, scheduler)
		pod.Name, pod.Spec.PriorityClassName = "waits-"+pod.Name, urgentName
		if !w.alone {
			pod.Annotations = map[string]string{
				gangrequest.GangKey: fmt.Sprintf("waits-%05d", i/waitingMembers), gangrequest.GangSizeKey: strconv.Itoa(waitingMembers),
				gangrequest.RequiredKey: v1.LabelHostname,
			}
		}
		pods = append(pods, pod)
	}
	return pods
}

// createWaiting makes the pods that wait beside the workload's, and has a scheduler try them until
// each says why it waits. So what a pod costs once, when it begins to wait, is before the window.
func (c *cluster) createWaiting(ctx context.Context, o *options, p *plan, config *configuration) (err error) {
	pods := p.workload.waitingPods(config.schedulerName)
	if len(pods) == 0 {
		return nil
	}
	if err := c.createPods(ctx, pods); err != nil {
		return err
	}
	log := &devcluster.Tail{File: o.log}
	s, err := c.StartScheduler(ctx, schedulerOptions(o, p, config, log))
	if err != nil {
		return fmt.Errorf("%w\n%s", err, log)
	}
	defer func() { err = errors.Join(err, s.Kill()) }()
	told := 0
	err = wait.PollUntilContextTimeout(ctx, settlePoll, settleLimit, true, func(ctx context.Context) (bool, error) {
		list, err := c.kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err // wrapped below
		}
		told = 0
		for i := range list.Items {
			if slices.ContainsFunc(list.Items[i].Status.Conditions, saysWhy) {
				told++
			}
		}
		return told == len(pods), nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d waiting pods say why: %w\n%s", told, len(pods), err, log)
	}
	return nil
}

func saysWhy(c v1.PodCondition) bool {
	return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
}

// scrapePlans reads how long plans took that found places.
func (out *Cell) scrapePlans(ctx context.Context, client *schedulerClient) error {
	body, err := client.wait(ctx, "/metrics")
	if err != nil {
		return err
	}
	f, err := parseMetrics(bytes.NewReader(body), plansName)
	if err != nil {
		return err
	}
	if took := f.histogram(plansName, map[string]string{"result": "placed"}); took.count > 0 {
		out.Plans, out.PlanP50Ms, out.PlanP99Ms = int(took.count), ms(took.quantile(0.5)), ms(took.quantile(0.99))
	}
	return nil
}

// singles names the workload of single pods that a workload with gangs is compared with; empty for
// workloads without.
func (w *workload) singles() string {
	switch {
	case w.waiting > 0:
		return lateSingles
	case w.gang > 0:
		return singlesOfGangs
	}
	return ""
}

// cpu is what a pod costs in all.
func cpu(c *Cell) float64 { return c.SchedulerCPUMs + c.ControlPlaneCPUMs }

// gangTable compares gangs, and single pods beside waiting ones, with single pods of the same
// shape in the same repeat.
func gangTable(cells []Cell) *report.Table {
	t := &report.Table{Title: "Gangs beside single pods of the same shape", Header: []string{
		"nodes, workload", "profile", "pods/s", "to singles' (quartiles)", "CPU of both ms/pod", "to singles' (quartiles)", "scheduler CPU ms/pod", "plans", "plan p50 ms", "p99 ms",
	}}
	of := map[[3]string][]*Cell{} // nodes, workload, profile
	for i := range cells {
		c := &cells[i]
		key := [3]string{strconv.Itoa(c.Nodes), c.Workload, c.Profile}
		of[key] = append(of[key], c)
	}
	for _, key := range slices.SortedFunc(maps.Keys(of), func(a, b [3]string) int { return slices.Compare(a[:], b[:]) }) {
		name := findWorkload(key[1]).singles()
		if name == "" {
			continue
		}
		mine := of[key]
		median := func(value func(*Cell) float64) float64 { return sampleOf(mine, value).Median() }
		singles := of[[3]string{key[0], name, key[2]}]
		t.Add(strings.Join(key[:2], ", "), key[2], number(median(podsPerSecond), 0), ratioText(ratios(mine, singles, podsPerSecond)),
			number(median(cpu), 2), ratioText(ratios(mine, singles, cpu)), number(median(func(c *Cell) float64 { return c.SchedulerCPUMs }), 2),
			number(median(func(c *Cell) float64 { return float64(c.Plans) }), 0),
			number(median(func(c *Cell) float64 { return c.PlanP50Ms }), 2), number(median(func(c *Cell) float64 { return c.PlanP99Ms }), 2))
	}
	return t
}
