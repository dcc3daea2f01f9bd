// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
)

// eventKubeletRefusesPods is the reason of the event on a node to which others are preferred, because its
// kubelet refuses pods.
const eventKubeletRefusesPods = "KubeletRefusesPods"

// watchRefusals watches the pods that have failed, and sends an event on nodes whose kubelets refuse
// pods. The scheduler's own informer has no pods that have ended, and shows a failing pod in its state
// before.
func (eh *eventHandlers) watchRefusals(ctx context.Context, h fwk.Handle) error {
	eh.onRefusing = func(m refusals.Mark) {
		if node, err := eh.table.cache.listers.stores.nodes.Get(m.Node); err == nil {
			h.EventRecorder().Eventf(node, nil, v1.EventTypeWarning, eventKubeletRefusesPods, "Scheduling", "%s", m.String())
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(h.ClientSet(), 0, informers.WithTransform(refusals.Strip),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName!=,status.phase=Failed" }))
	see := func(obj any) {
		if pod, ok := obj.(*v1.Pod); ok {
			eh.refusals.See(pod)
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) },
	})
	if err != nil {
		return fmt.Errorf("watching failed pods: %w", err)
	}
	factory.Start(ctx.Done())
	return nil
}
