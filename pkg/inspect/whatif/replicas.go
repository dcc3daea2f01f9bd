// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"errors"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// newTemplate stands for the hash of a template whose pods are not there yet. Pods of earlier templates have another.
const newTemplate = "what-if"

// replicasOf is how many pods spec.replicas are, 1 to MaxAsked.
func replicasOf(replicas *int32) (int, error) {
	count := ptr.Deref(replicas, 1)
	if count < 1 || count > MaxAsked {
		return 0, fmt.Errorf("spec.replicas: it runs %d pods, want 1 to %d", count, MaxAsked)
	}
	return int(count), nil
}

// podsOfDeployment are the pods of a Deployment as its controllers make them: of a new ReplicaSet.
func podsOfDeployment(d *appsv1.Deployment, count int) []*v1.Pod {
	name := d.Name + "-" + newTemplate
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID("what-if-replicaset-" + d.Namespace + "-" + name)}
	out := make([]*v1.Pod, count)
	for i := range out {
		out[i] = podOf(&d.Spec.Template, d.Namespace, fmt.Sprintf("%s-%d", name, i), owner)
		metav1.SetMetaDataLabel(&out[i].ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, newTemplate)
	}
	return out
}

// errClaims: claims that are not there yet are no part of the cluster that is asked.
var errClaims = errors.New("spec.volumeClaimTemplates: the claims that it would make are not answered for; leave them out, and their volumeMounts, to ask about the rest")

// podsOfStatefulSet are the pods of a StatefulSet as its controller makes them.
func podsOfStatefulSet(s *appsv1.StatefulSet, count int) []*v1.Pod {
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: s.Name, UID: s.UID}
	if owner.UID == "" {
		owner.UID = types.UID("what-if-statefulset-" + s.Namespace + "-" + s.Name)
	}
	first := 0
	if s.Spec.Ordinals != nil {
		first = int(s.Spec.Ordinals.Start)
	}
	out := make([]*v1.Pod, count)
	for i := range out {
		at := strconv.Itoa(first + i)
		pod := podOf(&s.Spec.Template, s.Namespace, s.Name+"-"+at, owner)
		pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, s.Spec.ServiceName
		metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.StatefulSetPodNameLabel, pod.Name)
		metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.PodIndexLabel, at)
		metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, s.Name+"-"+newTemplate)
		out[i] = pod
	}
	return out
}
