// SPDX-License-Identifier: Apache-2.0

package testobj

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodWrapper builds a pod. Its methods change the pod and can be chained in any order.
type PodWrapper struct{ pod *v1.Pod }

// Pod starts a pod in the namespace "default" whose UID is its name. It has one container, "main",
// without requests, and empty labels and annotations to which a test can write.
func Pod(name string) *PodWrapper {
	return &PodWrapper{&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID(name), Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}}
}

// Obj returns the pod.
func (p *PodWrapper) Obj() *v1.Pod { return p.pod }

// With applies functions of the test that change the pod.
func (p *PodWrapper) With(changes ...func(*v1.Pod)) *PodWrapper {
	for _, change := range changes {
		change(p.pod)
	}
	return p
}

// Namespace sets the namespace.
func (p *PodWrapper) Namespace(s string) *PodWrapper {
	p.pod.Namespace = s
	return p
}

// UID sets the UID.
func (p *PodWrapper) UID(s string) *PodWrapper {
	p.pod.UID = types.UID(s)
	return p
}

// ResourceVersion sets the resource version.
func (p *PodWrapper) ResourceVersion(s string) *PodWrapper {
	p.pod.ResourceVersion = s
	return p
}

// Label sets a label.
func (p *PodWrapper) Label(key, value string) *PodWrapper {
	p.pod.Labels[key] = value
	return p
}

// Annotation sets an annotation.
func (p *PodWrapper) Annotation(key, value string) *PodWrapper {
	p.pod.Annotations[key] = value
	return p
}

// Annotations adds annotations to those the pod has.
func (p *PodWrapper) Annotations(annotations map[string]string) *PodWrapper {
	maps.Copy(p.pod.Annotations, annotations)
	return p
}

// Finalizer adds a finalizer.
func (p *PodWrapper) Finalizer(name string) *PodWrapper {
	p.pod.Finalizers = append(p.pod.Finalizers, name)
	return p
}

// Owner adds a controller to the pod's owner references.
func (p *PodWrapper) Owner(kind, name, uid string) *PodWrapper {
	p.pod.OwnerReferences = append(p.pod.OwnerReferences, metav1.OwnerReference{Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)})
	return p
}

// Created sets the time of creation.
func (p *PodWrapper) Created(at time.Time) *PodWrapper {
	p.pod.CreationTimestamp = metav1.NewTime(at)
	return p
}

// Node binds the pod to a node.
func (p *PodWrapper) Node(name string) *PodWrapper {
	p.pod.Spec.NodeName = name
	return p
}

// NodeSelector restricts the pod to nodes with these labels.
func (p *PodWrapper) NodeSelector(labels map[string]string) *PodWrapper {
	p.pod.Spec.NodeSelector = labels
	return p
}

// Scheduler sets the scheduler's name.
func (p *PodWrapper) Scheduler(name string) *PodWrapper {
	p.pod.Spec.SchedulerName = name
	return p
}

// PriorityClass sets the name of the priority class.
func (p *PodWrapper) PriorityClass(name string) *PodWrapper {
	p.pod.Spec.PriorityClassName = name
	return p
}

// GracePeriod sets the pod's termination grace period.
func (p *PodWrapper) GracePeriod(d time.Duration) *PodWrapper {
	p.pod.Spec.TerminationGracePeriodSeconds = new(int64(d / time.Second))
	return p
}

// Phase sets the phase.
func (p *PodWrapper) Phase(phase v1.PodPhase) *PodWrapper {
	p.pod.Status.Phase = phase
	return p
}

// Scheduled adds the condition PodScheduled with the time at which the pod was bound.
func (p *PodWrapper) Scheduled(at time.Time) *PodWrapper {
	p.pod.Status.Conditions = append(p.pod.Status.Conditions, v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at),
	})
	return p
}
