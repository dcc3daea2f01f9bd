// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
)

// podSweep is how often the sweeper looks; kube-controller-manager looks every 20 s.
const podSweep = 5 * time.Second

// podSweeper sets deleted pods that never had a node to failed. No kubelet does, and a Job with
// podReplacementPolicy Failed keeps its finalizer on them until then: their namespace could not end. It
// is one of the rules of kube-controller-manager's collector of pods, which would link kubelet.
type podSweeper struct {
	client kubernetes.Interface
	pods   corelisters.PodLister
}

func (s *podSweeper) run(ctx context.Context) {
	wait.UntilWithContext(ctx, s.sweep, podSweep)
}

func (s *podSweeper) sweep(ctx context.Context) {
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "List pods")
		return
	}
	for _, p := range pods {
		if p.DeletionTimestamp == nil || p.Spec.NodeName != "" || p.Status.Phase != v1.PodPending {
			continue
		}
		_, err := s.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType,
			[]byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			klog.FromContext(ctx).Error(err, "Fail a deleted pod without a node", "pod", klog.KObj(p))
		}
	}
}
