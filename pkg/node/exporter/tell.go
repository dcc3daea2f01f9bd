// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// tell logs the problems that the previous reading did not have; the condition has a limited length and
// no history.
func (e *Exporter) tell(ctx context.Context, problems []Problem) {
	told := make(map[Problem]bool, len(problems))
	for _, p := range problems {
		if !e.told[p] && !told[p] {
			klog.FromContext(ctx).Info("A reading had to do without something", "node", e.cfg.NodeName, "gpu", p.GPU, "problem", p.Text)
		}
		told[p] = true
	}
	e.told = told
}

// tellHealth logs the GPUs whose health differs from the previous reading. After the first reading it
// logs those that are unhealthy or degraded.
func (e *Exporter) tellHealth(ctx context.Context, before *v1alpha1.NodeGPUTopology) {
	for i := range e.good.Status.GPUHealth {
		h := &e.good.Status.GPUHealth[i]
		old := healthOf(before, h.ID)
		if old == nil && h.Healthy && !h.Degraded || old != nil && sameFault(h, old) {
			continue
		}
		klog.FromContext(ctx).Info("A GPU's health changed", "gpu", h.ID, "healthy", h.Healthy, "degraded", h.Degraded, "reason", h.Reason)
	}
}
