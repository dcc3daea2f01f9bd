// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// finishedPods is the opposite of the selector of kube-scheduler's own pod informer.
const finishedPods = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"

// followEnded passes finished pods, which kube-scheduler's informer does not have, to the gangs until ctx
// ends. Of pods in no gang it keeps the name.
func followEnded(ctx context.Context, client kubernetes.Interface, gangs *gangstate.Gangs) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(essence),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = finishedPods }))
	set := func(obj any) {
		if pod, ok := obj.(*v1.Pod); ok && finished(pod) {
			gangs.SetEnded(pod)
		}
	}
	remove := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if pod, ok := obj.(*v1.Pod); ok {
			gangs.DeleteEnded(pod)
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: set, DeleteFunc: remove,
		UpdateFunc: func(oldObj, obj any) {
			old, ok1 := oldObj.(*v1.Pod)
			pod, ok2 := obj.(*v1.Pod)
			if ok1 && ok2 && old.UID != pod.UID { // replaced under its name while the watch was broken
				gangs.DeleteEnded(old)
			}
			set(obj)
		},
	})
	if err != nil {
		return fmt.Errorf("watching finished pods: %w", err)
	}
	factory.Start(ctx.Done())
	return nil
}

func finished(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// essence removes the fields of a finished pod that are not used: there may be many thousands.
func essence(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	out := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
	if _, member := gangrequest.KeyOf(pod); !member {
		return out, nil
	}
	pod.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.ManagedFields = nil
	out.Spec.NodeName, out.Spec.SchedulerName, out.Spec.Priority = pod.Spec.NodeName, pod.Spec.SchedulerName, pod.Spec.Priority
	out.Status.Phase = pod.Status.Phase
	for i := range pod.Status.ContainerStatuses {
		state := v1.ContainerState{Terminated: pod.Status.ContainerStatuses[i].State.Terminated}
		out.Status.ContainerStatuses = append(out.Status.ContainerStatuses, v1.ContainerStatus{State: state})
	}
	return out, nil
}
