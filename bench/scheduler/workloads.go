// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const gpuResource = v1alpha1.DefaultResource

// share is a part of a workload.
type share struct{ gpus, percent int }

// workload is the requests of a cell's pods.
type workload struct {
	name   string
	title  string
	shares []share
	// times is the factor on the number of pods of -pods; 0 is once.
	times int
	// skip is the share of the bindings before the window. GPU pods wait until our graphs are read and
	// need none; others are bound meanwhile. Waiting gangs are tried, and after 5 seconds their members
	// get the reason in their status.
	skip float64
	// own: each pod requests the one device that only the node of its number has, and nothing else.
	own bool
	// gang is the number of pods of a gang, 0 for single pods; waiting is the number of gangs that wait
	// beside them, or, with alone, as many single pods as those would have.
	gang, waiting int
	alone         bool
}

const (
	// singlesOfGangs is the workload of single pods with the requests of gangs' members.
	singlesOfGangs = "four"
	// lateSingles has as many of them as the workloads beside waiting gangs, measured in the same
	// window.
	lateSingles = "four-late"
	// gangGPUs is the number of GPUs of a member.
	gangGPUs = 4
	// waitingMembers is the number of members of a waiting gang: they require one node, which holds one
	// fewer at most.
	waitingMembers = fleet.GPUs/gangGPUs + 1
)

var (
	oneGPU   = []share{{1, 100}}
	fourGPUs = []share{{gangGPUs, 100}}
	wholes   = []share{{fleet.GPUs, 100}}
	noGPUs   = []share{{0, 100}}
	// mixed has the sizes of the multigpu50 trace of Alibaba's openb cluster.
	mixed = []share{{1, 55}, {2, 17}, {4, 16}, {8, 12}}
	// upTo16 has every size that divides a machine of 16 GPUs.
	upTo16 = workload{shares: []share{{1, 40}, {2, 20}, {4, 20}, {8, 15}, {16, 5}}}
)

// serviceWorkloads are in the order of measuring. The one of own devices is upstream's
// SchedulingWithExtendedResource, of test/integration/scheduler_perf in 1.35: there, as here, each node
// has one device under a name of its own, and as many pods are created.
var serviceWorkloads = []workload{
	{name: "one", title: "one GPU a pod", shares: oneGPU},
	{name: "mix", title: "1, 2, 4 or 8 GPUs a pod (55, 17, 16, 12 %)", shares: mixed},
	{name: "whole", title: "8 GPUs a pod", shares: wholes},
	{name: "none", title: "pods without GPUs", shares: noGPUs},
	{name: "none-warm", title: "pods without GPUs, once the graphs are read", shares: noGPUs, times: 3, skip: 0.5},
	{name: "extended", title: "a pod for the one device of each node, as in scheduler_perf", shares: noGPUs, times: 3, own: true},
	{name: singlesOfGangs, title: "4 GPUs a pod", shares: fourGPUs},
	{name: lateSingles, title: "4 GPUs a pod, the last quarter of four times as many", shares: fourGPUs, times: 4, skip: 0.75},
	{name: "four-beside-gangs", title: "4 GPUs a pod, while 100 gangs wait", shares: fourGPUs, times: 4, skip: 0.75, waiting: 100},
	{name: "four-beside-pods", title: "4 GPUs a pod, while as many single pods wait as 100 gangs have", shares: fourGPUs, times: 4, skip: 0.75, waiting: 100, alone: true},
	{name: "gang-4", title: "gangs of 4 pods of 4 GPUs", shares: fourGPUs, gang: 4},
	{name: "gang-64", title: "gangs of 64 pods of 4 GPUs", shares: fourGPUs, gang: 64},
	{name: "gang-1000", title: "gangs of 1000 pods of 4 GPUs", shares: fourGPUs, gang: 1000},
}

// cycleWorkloads are the workloads of the cycle alone.
var cycleWorkloads = []workload{
	{name: "1 GPU", shares: oneGPU},
	{name: "mix 1/2/4/8", shares: mixed},
	{name: "no GPU", shares: noGPUs},
	{name: "8 GPUs", shares: wholes},
}

func workloadNames(of []workload) []string {
	names := make([]string, len(of))
	for i := range of {
		names[i] = of[i].name
	}
	return names
}

func findWorkload(name string) *workload {
	all := slices.Concat(serviceWorkloads, cycleWorkloads)
	return &all[slices.IndexFunc(all, func(w workload) bool { return w.name == name })]
}

// fitting returns the number of pods, at most times wanted, that all find room on the nodes under any
// policy: a profile that spreads must not be measured on pods that it left no whole node for. With one
// pod a node, the next one always finds an untouched node; equal pods whose size divides a node cannot
// fragment it.
func (w *workload) fitting(wanted, nodes int) int {
	wanted *= max(w.times, 1)
	if w.gang > 0 { // whole gangs, one at least, and a pod before them; 0 without room
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

// gpus reports whether the pods request GPUs.
func (w *workload) gpus() bool { return w.shares[0].gpus > 0 }

// first returns the number of the binding that the window begins with.
func (w *workload) first(pods int) int { return int(w.skip * float64(pods)) }

// singles returns the workload of single pods that a workload with gangs is compared with; empty for
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

// pods returns the workload's pods in the order of the queue. The first pod is in no gang: its binding
// begins the window, so that the plan of the first gang is in it.
func (w *workload) pods(n int, seed uint64, scheduler string) []*v1.Pod {
	out := make([]*v1.Pod, n)
	for i, gpus := range w.sizes(n, seed) {
		switch {
		case w.own: // fits the node of its number only, and requests neither CPU nor memory
			one := v1.ResourceList{ownResource(i): *resource.NewQuantity(1, resource.DecimalSI)}
			out[i] = podOf(podName(i), scheduler, one, one)
		default:
			out[i] = newPod(podName(i), gpus, scheduler)
		}
		if w.gang > 0 && i > 0 && scheduler != v1.DefaultSchedulerName { // stock places the same pods one by one
			joinGang(out[i], fmt.Sprintf("gang-%05d", (i-1)/w.gang), w.gang, "")
		}
	}
	return out
}

// sizes returns the pods' numbers of GPUs in the order of the queue.
func (w *workload) sizes(n int, seed uint64) []int {
	out := make([]int, 0, n)
	for _, s := range w.shares[1:] {
		for range n * s.percent / 100 {
			out = append(out, s.gpus)
		}
	}
	for len(out) < n { // the first share also takes the rest that rounding left
		out = append(out, w.shares[0].gpus)
	}
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	random.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// waitingPods returns the pods that wait beside the workload's: members of gangs that no node can hold,
// though each has the GPUs for some of them, or single pods that request more GPUs than a node has. They
// are urgent, so that all are tried before the first of the other pods.
func (w *workload) waitingPods(scheduler string) []*v1.Pod {
	if !w.alone && scheduler == v1.DefaultSchedulerName { // it would place members one by one
		return nil
	}
	pods := make([]*v1.Pod, w.waiting*waitingMembers)
	for i := range pods {
		name := "waits-" + podName(i)
		if w.alone {
			pods[i] = newPod(name, fleet.GPUs+1, scheduler)
		} else {
			pods[i] = newPod(name, gangGPUs, scheduler)
			joinGang(pods[i], fmt.Sprintf("waits-%05d", i/waitingMembers), waitingMembers, v1.LabelHostname)
		}
		pods[i].Spec.PriorityClassName = urgentName
	}
	return pods
}

// joinGang makes a pod a member of a gang, which has to be in one domain of a level unless that is
// empty.
func joinGang(pod *v1.Pod, name string, size int, level string) {
	pod.Annotations = map[string]string{gangrequest.GangKey: name, gangrequest.GangSizeKey: strconv.Itoa(size)}
	if level != "" {
		pod.Annotations[gangrequest.RequiredKey] = level
	}
}

// newPod returns a pod of one container. CPU and memory are in proportion to the GPUs and a quarter of a
// node's share for them, so that GPUs run out first.
func newPod(name string, gpus int, scheduler string) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("512Mi")}
	limits := v1.ResourceList{}
	if gpus > 0 {
		requests[v1.ResourceCPU] = *resource.NewQuantity(int64(2*gpus), resource.DecimalSI)
		requests[v1.ResourceMemory] = *resource.NewQuantity(int64(gpus)<<33, resource.BinarySI) // 8 GiB a GPU
		requests[gpuResource] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
		limits[gpuResource] = requests[gpuResource]
	}
	return podOf(name, scheduler, requests, limits)
}

// gpusOf returns the number of GPUs that a pod of newPod requests.
func gpusOf(pod *v1.Pod) int {
	q := pod.Spec.Containers[0].Resources.Requests[gpuResource]
	return int(q.Value())
}

// ownResource returns the name of the device that only one node has, once.
func ownResource(node int) v1.ResourceName {
	return v1.ResourceName(fmt.Sprintf("bench.nvtopo.dev/node-%05d", node))
}

// podOf returns a pod with a UID, which an API server replaces by its own.
func podOf(name, scheduler string, requests, limits v1.ResourceList) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID(name)},
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
