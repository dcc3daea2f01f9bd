// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	// SchedulerName is the name by which pods ask for the project's scheduler.
	SchedulerName = release.Profile

	gpuResource = v1.ResourceName("nvidia.com/gpu")
	namespace   = metav1.NamespaceDefault
	// CPUs and memory for each GPU: little enough that no machine of the
	// catalogue runs out of them before its GPUs.
	cpusPerGPU     = 2
	gibibytePerGPU = 8
)

// request is one pod of the demo.
type request struct {
	name       string
	gpus       []int  // for each container
	policy     string // topology-policy; empty is the default, best-effort
	affinity   string // numa-affinity
	minLink    string
	minGBps    int
	model      string
	impossible bool // no machine can ever serve it
}

func (r *request) total() int {
	n := 0
	for _, g := range r.gpus {
		n += g
	}
	return n
}

// constraint returns the request as a constraint of the library.
func (r *request) constraint() (nvtopo.Constraint, error) {
	c := nvtopo.Constraint{MinBandwidth: int64(r.minGBps) * 1e6} // 1 GB/s = 1e6 kB/s
	var err error
	if r.policy != "" {
		if c.Policy, err = nvtopo.ParsePolicy(r.policy); err != nil {
			return c, fmt.Errorf("pod %s: %w", r.name, err)
		}
	}
	if r.minLink != "" {
		if c.MinLink, err = nvtopo.ParseClass(r.minLink); err != nil {
			return c, fmt.Errorf("pod %s: %w", r.name, err)
		}
	}
	return c, nil
}

// allowed returns the GPUs of a graph that the request accepts at all.
func (r *request) allowed(g *nvtopo.Graph) nvtopo.Mask {
	m := g.Healthy()
	for i := range g.GPUs {
		if r.model != "" && !strings.Contains(g.GPUs[i].Model, r.model) {
			m &^= nvtopo.MaskOf(i)
		}
	}
	return m
}

// wishes returns the request's requirements in a few words, for the table.
func (r *request) wishes() string {
	var out []string
	for _, w := range []string{r.policy, r.model} {
		if w != "" {
			out = append(out, w)
		}
	}
	if r.minLink != "" {
		out = append(out, ">="+r.minLink)
	}
	if r.minGBps != 0 {
		out = append(out, fmt.Sprintf(">=%d GB/s", r.minGBps))
	}
	if r.affinity != "" {
		out = append(out, "numa "+r.affinity)
	}
	return strings.Join(out, ", ")
}

func (r *request) annotations() map[string]string {
	a := map[string]string{}
	for key, value := range map[string]string{
		podrequest.TopologyPolicyKey: r.policy,
		podrequest.NUMAAffinityKey:   r.affinity,
		podrequest.MinLinkKey:        r.minLink,
		podrequest.GPUModelKey:       r.model,
	} {
		if value != "" {
			a[key] = value
		}
	}
	if r.minGBps != 0 {
		a[podrequest.MinBandwidthKey] = strconv.Itoa(r.minGBps)
	}
	return a
}

// pod builds the object: Guaranteed, so that CPUs can be pinned.
func (r *request) pod() *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: r.name, Namespace: namespace, Annotations: r.annotations()},
		Spec: v1.PodSpec{
			SchedulerName: SchedulerName, RestartPolicy: v1.RestartPolicyNever,
			// A real cluster puts the account's token into each pod; nothing runs in these.
			AutomountServiceAccountToken: new(bool),
		},
	}
	for i, n := range r.gpus {
		quantities := v1.ResourceList{
			v1.ResourceCPU:    *resource.NewQuantity(int64(n*cpusPerGPU), resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(int64(n*gibibytePerGPU)<<30, resource.BinarySI),
			gpuResource:       *resource.NewQuantity(int64(n), resource.DecimalSI),
		}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: "main" + strings.Repeat("-extra", i), Image: "registry.example.com/demo:1",
			Resources: v1.ResourceRequirements{Requests: quantities, Limits: quantities},
		})
	}
	return p
}
