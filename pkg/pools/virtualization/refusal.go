// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// ReasonSlicedPool of ConditionTemplateValid: the job requests whole GPUs of a pool that gives out parts
// of them.
const ReasonSlicedPool = "SlicedPool"

// Refusal returns why a job can have no place in a pool that gives out parts of GPUs, or "". Kueue would
// let such a job wait for ever: no queue of the pool has whole GPUs.
func Refusal(pool *v1alpha1.ComputePool, job *v1alpha1.ElasticJob) string {
	unit, sliced := units.Sliced(pool.Spec.Virtualization)
	if !sliced || !asksFor(&job.Spec.Template.Spec, units.WholeGPU) {
		return ""
	}
	offer := unit.Resource
	if offer == units.MilliGPU {
		offer = "the slices of profile " + pool.Spec.Virtualization.Profile + ", for example nvidia.com/mig-1g.10gb"
	}
	return fmt.Sprintf("template: it asks for %s, and pool %s gives out parts of GPUs: ask for %s, or name another pool",
		units.WholeGPU, pool.Name, offer)
}

// asksFor reports whether a container has a limit for a resource; requests without a limit are not
// considered.
func asksFor(pod *v1.PodSpec, resource v1.ResourceName) bool {
	asks := func(c v1.Container) bool {
		n := c.Resources.Limits[resource]
		return n.Sign() > 0
	}
	return slices.ContainsFunc(pod.Containers, asks) || slices.ContainsFunc(pod.InitContainers, asks)
}
