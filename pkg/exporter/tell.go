// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// tell logs the problems that the reading before did not have: the condition has only
// so many characters, and no past.
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

// tellHealth logs the GPUs whose health is another than at the reading before, of which
// there is none at first.
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
