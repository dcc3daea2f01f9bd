// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

// Attach lets a controller take part in the election until ctx ends, with the pods
// and graphs that the scheduler of this process has anyway. The handler it returns
// has to be told of NodeGPUTopologies.
func Attach(ctx context.Context, h fwk.Handle, namespace string, state *nodestate.State) cache.ResourceEventHandler {
	pods := h.SharedInformerFactory().Core().V1().Pods()
	synced := pods.Informer().HasSynced
	c := New(state, h.ClientSet(), pods.Lister(), h.EventRecorder())
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), synced) {
			return
		}
		if err := Lead(ctx, h.ClientSet(), namespace, c.Run); err != nil {
			klog.FromContext(ctx).Error(err, "Annotations are not repaired by this process")
		}
	}()
	return c.Handler()
}
