// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// share is a part of a workload.
type share struct{ gpus, percent int }

// workload is what a cell's pods ask for.
type workload struct {
	name   string
	title  string
	shares []share
	// times is how many times as many pods it has as -pods says; 0 is once.
	times int
	// skip is the share of the bindings that come before the window. GPU pods wait
	// until our graphs are read and need none; others are bound meanwhile. Gangs that wait
	// are tried, and after 5 seconds their members are told why.
	skip float64
	// own is that each pod asks for the one device that only the node of its number
	// has, and for nothing else.
	own bool
	// gang is how many pods a gang has, 0 for single pods; waiting is how many gangs wait beside
	// them, or, alone, as many single pods as those would have.
	gang, waiting int
	alone         bool
}

// workloads are in the order in which they are measured. The mix has the sizes
// of the multigpu50 trace of Alibaba's openb cluster. The last one is upstream's
// SchedulingWithExtendedResource, of test/integration/scheduler_perf in 1.35: there as
// here each node has one device under a name of its own, and there are as many pods.
var workloads = []workload{
	{name: "one", title: "one GPU a pod", shares: []share{{1, 100}}},
	{name: "mix", title: "1, 2, 4 or 8 GPUs a pod (55, 17, 16, 12 %)", shares: []share{{1, 55}, {2, 17}, {4, 16}, {8, 12}}},
	{name: "whole", title: "8 GPUs a pod", shares: []share{{8, 100}}},
	{name: "none", title: "pods without GPUs", shares: []share{{0, 100}}},
	{name: "none-warm", title: "pods without GPUs, once the graphs are read", shares: []share{{0, 100}}, times: 3, skip: 0.5},
	{name: "extended", title: "a pod for the one device of each node, as in scheduler_perf", shares: []share{{0, 100}}, times: 3, own: true},
	{name: singlesOfGangs, title: "4 GPUs a pod", shares: []share{{gangGPUs, 100}}},
	{name: lateSingles, title: "4 GPUs a pod, the last quarter of four times as many", shares: []share{{gangGPUs, 100}}, times: 4, skip: 0.75},
	{name: "four-beside-gangs", title: "4 GPUs a pod, while 100 gangs wait", shares: []share{{gangGPUs, 100}}, times: 4, skip: 0.75, waiting: 100},
	{name: "four-beside-pods", title: "4 GPUs a pod, while as many single pods wait as 100 gangs have", shares: []share{{gangGPUs, 100}}, times: 4, skip: 0.75, waiting: 100, alone: true},
	{name: "gang-4", title: "gangs of 4 pods of 4 GPUs", shares: []share{{gangGPUs, 100}}, gang: 4},
	{name: "gang-64", title: "gangs of 64 pods of 4 GPUs", shares: []share{{gangGPUs, 100}}, gang: 64},
	{name: "gang-1000", title: "gangs of 1000 pods of 4 GPUs", shares: []share{{gangGPUs, 100}}, gang: 1000},
}

func workloadNames() []string {
	names := make([]string, len(workloads))
	for i := range workloads {
		names[i] = workloads[i].name
	}
	return names
}

func findWorkload(name string) *workload {
	return &workloads[slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })]
}

// fitting is the number of pods, at most times wanted, that all find room on so many
// nodes whatever the policy: a profile that spreads must not be measured on
// pods that it left no whole node for. With one pod a node, the next one always
// finds an untouched node; equal pods whose size divides a node cannot
// fragment it.
func (w *workload) fitting(wanted, nodes int) int {
	wanted *= max(w.times, 1)
	if w.gang > 0 { // whole gangs, one at least, and a pod before them; 0 if there is no room
		room := (nodes*(fleet.GPUs/gangGPUs) - 1) / w.gang
		if room == 0 {
			return 0
		}
		return 1 + min(max(1, wanted/w.gang), room)*w.gang
	}
	if w.own || len(w.shares) > 1 {
		return min(wanted, nodes)
	}
	if g := w.shares[0].gpus; g > 0 {
		return min(wanted, nodes*(fleet.GPUs/g))
	}
	return wanted
}

// gpus says whether the pods ask for GPUs.
func (w *workload) gpus() bool { return w.shares[0].gpus > 0 }

// first is the number of the binding that the window begins with.
func (w *workload) first(pods int) int { return int(w.skip * float64(pods)) }

// pods are the workload's pods in the order of the queue.
func (w *workload) pods(n int, seed uint64, scheduler string) []*v1.Pod {
	out := make([]*v1.Pod, n)
	for i, gpus := range w.sizes(n, seed) {
		if w.own {
			out[i] = newOwnPod(i, scheduler)
			continue
		}
		out[i] = newPod(i, gpus, scheduler)
	}
	if w.gang > 0 && scheduler != v1.DefaultSchedulerName { // stock places the same pods one by one
		inGangs(out, w.gang)
	}
	return out
}

// sizes are the pods' numbers of GPUs in the order of the queue.
func (w *workload) sizes(n int, seed uint64) []int {
	out := make([]int, 0, n)
	for _, s := range w.shares[1:] {
		for range n * s.percent / 100 {
			out = append(out, s.gpus)
		}
	}
	for len(out) < n { // the first share also takes what rounding left
		out = append(out, w.shares[0].gpus)
	}
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	random.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// newPod makes a pod of one container. CPU and memory are in proportion to the
// GPUs and a quarter of what a node has for them, so that GPUs run out first.
func newPod(index, gpus int, scheduler string) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("512Mi")}
	limits := v1.ResourceList{}
	if gpus > 0 {
		requests[v1.ResourceCPU] = *resource.NewQuantity(int64(2*gpus), resource.DecimalSI)
		requests[v1.ResourceMemory] = *resource.NewQuantity(int64(gpus)<<33, resource.BinarySI) // 8 GiB a GPU
		requests[v1alpha1.DefaultResource] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
		limits[v1alpha1.DefaultResource] = requests[v1alpha1.DefaultResource]
	}
	return podOf(index, scheduler, requests, limits)
}

// newOwnPod makes a pod that fits the node of its number only, and asks for neither
// CPU nor memory.
func newOwnPod(index int, scheduler string) *v1.Pod {
	one := v1.ResourceList{ownResource(index): *resource.NewQuantity(1, resource.DecimalSI)}
	return podOf(index, scheduler, one, one)
}

// ownResource is the device that only one node has, and one of it.
func ownResource(node int) v1.ResourceName {
	return v1.ResourceName(fmt.Sprintf("bench.nvtopo.dev/node-%05d", node))
}

func podOf(index int, scheduler string, requests, limits v1.ResourceList) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(index), Namespace: metav1.NamespaceDefault},
		Spec: v1.PodSpec{
			SchedulerName:                 scheduler,
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []v1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10",
				Resources: v1.ResourceRequirements{Requests: requests, Limits: limits},
			}},
		},
	}
}

// podName is zero-padded: the API server lists pods by name, and the scheduler
// queues them in that order.
func podName(index int) string { return fmt.Sprintf("pod-%05d", index) }
