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
// environment, probes and mounts, what its volumes hold, and what containers said when they ended. The
// pod is not changed; the two share the rest.
func Essence(pod *v1.Pod) *v1.Pod {
	out := *pod
	out.ObjectMeta = bareMeta(&pod.ObjectMeta)
	out.Spec.Containers, out.Spec.InitContainers = essences(pod.Spec.Containers), essences(pod.Spec.InitContainers)
	out.Spec.EphemeralContainers = nil
	out.Spec.Volumes = volumes(pod.Spec.Volumes)
	out.Status = status(&pod.Status)
	return &out
}

// volumes have what kube-scheduler's plugins read of them: the names of claims, and what is a disk that
// two pods cannot share or of which a node takes only so many.
func volumes(of []v1.Volume) []v1.Volume {
	out := make([]v1.Volume, len(of))
	for i := range of {
		from, to := &of[i], &out[i]
		to.Name = from.Name
		to.PersistentVolumeClaim = from.PersistentVolumeClaim
		to.GCEPersistentDisk, to.AWSElasticBlockStore = from.GCEPersistentDisk, from.AWSElasticBlockStore
		to.AzureDisk, to.VsphereVolume = from.AzureDisk, from.VsphereVolume
		if from.Ephemeral != nil {
			to.Ephemeral = &v1.EphemeralVolumeSource{} // its claim is found by the names of pod and volume
		}
		if c := from.Cinder; c != nil {
			to.Cinder = &v1.CinderVolumeSource{VolumeID: c.VolumeID, FSType: c.FSType, ReadOnly: c.ReadOnly}
		}
		if d := from.ISCSI; d != nil {
			to.ISCSI = &v1.ISCSIVolumeSource{TargetPortal: d.TargetPortal, IQN: d.IQN, Lun: d.Lun, ReadOnly: d.ReadOnly}
		}
		if d := from.RBD; d != nil {
			to.RBD = &v1.RBDVolumeSource{CephMonitors: d.CephMonitors, RBDPool: d.RBDPool, RBDImage: d.RBDImage, ReadOnly: d.ReadOnly}
		}
	}
	return out
}

// status has what is read of a pod's status: what it waits for, what a resize makes of its requests,
// its claims, and when its containers ended.
func status(of *v1.PodStatus) v1.PodStatus {
	out := v1.PodStatus{
		Phase: of.Phase, NominatedNodeName: of.NominatedNodeName, StartTime: of.StartTime, QOSClass: of.QOSClass,
		ResourceClaimStatuses: of.ResourceClaimStatuses, ExtendedResourceClaimStatus: of.ExtendedResourceClaimStatus,
		Resources: of.Resources, AllocatedResources: of.AllocatedResources,
		ContainerStatuses: containerStatuses(of.ContainerStatuses), InitContainerStatuses: containerStatuses(of.InitContainerStatuses),
	}
	for _, c := range of.Conditions {
		if c.Type != v1.PodScheduled {
			c.Message = "" // anybody's
		}
		out.Conditions = append(out.Conditions, c)
	}
	return out
}

func containerStatuses(of []v1.ContainerStatus) []v1.ContainerStatus {
	out := make([]v1.ContainerStatus, len(of))
	for i := range of {
		out[i] = v1.ContainerStatus{Name: of[i].Name, Resources: of[i].Resources, AllocatedResources: of[i].AllocatedResources}
		if t := of[i].State.Terminated; t != nil {
			out[i].State.Terminated = &v1.ContainerStateTerminated{FinishedAt: t.FinishedAt}
		}
	}
	return out
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

// Bare returns another object than a pod without what no scheduler reads: who wrote which field, the
// templates of pods, and attributes and Secrets of CSI volumes. The object is not changed; one that has none of it is returned as it is.
func Bare(obj any) any {
	object, ok := obj.(interface {
		metav1.Object
		runtime.Object
	})
	if !ok {
		return obj
	}
	_, applied := object.GetAnnotations()[v1.LastAppliedConfigAnnotation]
	volume, _ := object.(*v1.PersistentVolume)
	if _, pods := template(object); len(object.GetManagedFields()) == 0 && !applied && !pods && volume == nil {
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
	if volume, ok := copied.(*v1.PersistentVolume); ok && volume.Spec.CSI != nil {
		csi := volume.Spec.CSI
		volume.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle, ReadOnly: csi.ReadOnly, FSType: csi.FSType}
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
