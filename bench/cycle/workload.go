// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// workload is a stream of pods by how many GPUs each asks for.
type workload struct {
	name  string
	sizes []int // GPUs
	share []int // of each size, in per cent
}

// workloads are the four streams of the scheduler benchmarks. The mix is that of
// the openb trace's multi-GPU variant, rounded.
func workloads() []workload {
	return []workload{
		{"1 GPU", []int{1}, []int{100}},
		{"mix 1/2/4/8", []int{1, 2, 4, 8}, []int{55, 17, 16, 12}},
		{"no GPU", []int{0}, []int{100}},
		{"8 GPUs", []int{8}, []int{100}},
	}
}

func (w workload) draw(r *rand.Rand) int {
	at := r.IntN(100)
	for i, s := range w.share {
		if at -= s; at < 0 {
			return w.sizes[i]
		}
	}
	return w.sizes[len(w.sizes)-1]
}

// fill is the share of a cluster's GPUs that a workload may ask for in all:
// above it the last pods would measure a full cluster.
const fill = 0.9

// pods returns at most count pods of the workload, for the same seed always the same.
func (w workload) pods(count, gpus int, scheduler string, seed uint64) []*v1.Pod {
	r := rand.New(rand.NewPCG(seed, 0x6379636c65))
	left := int(fill * float64(gpus))
	var out []*v1.Pod
	for i := range count {
		n := w.draw(r)
		if left -= n; left < 0 {
			break
		}
		out = append(out, newPod(fmt.Sprintf("pod-%05d", i), n, scheduler))
	}
	return out
}

// newPod asks for less CPU and memory per GPU than any machine here has, so that
// GPUs run out first.
func newPod(name string, gpus int, scheduler string) *v1.Pod {
	share := int64(max(1, gpus))
	requests := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(4*share, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(16<<30*share, resource.BinarySI),
	}
	limits := v1.ResourceList{}
	if gpus > 0 {
		requests[gpuResource] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
		limits[gpuResource] = requests[gpuResource]
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID(name), Labels: map[string]string{"app": "bench"}, ResourceVersion: "1",
		},
		Spec: v1.PodSpec{
			SchedulerName: scheduler, RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{
				Name: "main", Image: "registry.example/job:1", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits},
			}},
		},
	}
}

// gpusOf is how many GPUs a pod of newPod asks for.
func gpusOf(pod *v1.Pod) int {
	q := pod.Spec.Containers[0].Resources.Requests[gpuResource]
	return int(q.Value())
}
