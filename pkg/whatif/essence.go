// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Essence returns a pod without what no scheduler reads: what runs in its containers and with which
// environment, probes and mounts. The pod is not changed; the two share the rest.
func Essence(pod *v1.Pod) *v1.Pod {
	out := *pod
	out.ObjectMeta = bareMeta(&pod.ObjectMeta)
	out.Spec.Containers, out.Spec.InitContainers = essences(pod.Spec.Containers), essences(pod.Spec.InitContainers)
	out.Spec.EphemeralContainers = nil
	return &out
}

func essences(containers []v1.Container) []v1.Container {
	out := make([]v1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		out[i] = v1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
	return out
}

// bareMeta drops who wrote what, and what kubectl keeps for itself: a whole copy of the object.
func bareMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	out := *meta
	out.ManagedFields = nil
	if _, ok := out.Annotations[v1.LastAppliedConfigAnnotation]; ok {
		out.Annotations = maps.Clone(out.Annotations)
		delete(out.Annotations, v1.LastAppliedConfigAnnotation)
	}
	return out
}

// Bare returns another object than a pod without what no scheduler reads: who wrote which field, and
// the templates of pods. The object is not changed; one that has none of it is returned as it is.
func Bare(obj any) any {
	object, ok := obj.(interface {
		metav1.Object
		runtime.Object
	})
	if !ok {
		return obj
	}
	_, applied := object.GetAnnotations()[v1.LastAppliedConfigAnnotation]
	if _, pods := template(object); len(object.GetManagedFields()) == 0 && !applied && !pods {
		return obj
	}
	copied, ok := object.DeepCopyObject().(interface {
		metav1.Object
		runtime.Object
	})
	if !ok {
		return obj
	}
	copied.SetManagedFields(nil)
	annotations := copied.GetAnnotations()
	delete(annotations, v1.LastAppliedConfigAnnotation)
	if spec, pods := template(copied); pods {
		*spec = v1.PodSpec{}
	}
	return copied
}

// template is the pod that an object makes others like.
func template(obj any) (spec *v1.PodSpec, ok bool) {
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec, true
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec, true
	case *v1.ReplicationController:
		if o.Spec.Template != nil {
			return &o.Spec.Template.Spec, true
		}
	}
	return nil, false
}
