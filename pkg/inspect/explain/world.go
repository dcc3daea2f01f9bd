// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
)

// World is a cluster at one moment. What is not installed or may not be read is empty. Its Jobs,
// ElasticJobs, Claims and LocalQueues are those of the namespace that is asked about, and all others those
// of all namespaces: pods elsewhere hold GPUs, and Workloads the quota.
type World struct {
	clusterobjects.Objects

	// Profiles are those by which pods are explained, see UseProfiles; the shipped one if there are none.
	Profiles []Profile
	// NoDefinition: the API server does not know NodeGPUTopologies.
	NoDefinition bool
	// ClaimsKnown: Claims are all that the namespace has.
	ClaimsKnown bool
	// QueuesKnown: LocalQueues are all that the namespace has.
	QueuesKnown bool
}

// scene is a World, and what is read of it.
type scene struct {
	*World
	*cluster
	quota quota
}

func newScene(w *World) *scene {
	if len(w.Profiles) == 0 {
		w.Profiles = []Profile{ShippedProfile()}
	}
	c := newCluster(w)
	return &scene{World: w, cluster: c, quota: quota{w, c.resources()}}
}

// owned are the pods that an object controls.
func (w *World) owned(uid types.UID) (out []*v1.Pod) {
	for i := range w.Pods {
		if slices.ContainsFunc(w.Pods[i].OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid }) {
			out = append(out, &w.Pods[i])
		}
	}
	return out
}

// find is the object of that name, of no namespace if that is empty; nil if there is none.
func find[T any, P interface {
	*T
	metav1.Object
}](all []T, namespace, name string) P {
	for i := range all {
		if o := P(&all[i]); o.GetNamespace() == namespace && o.GetName() == name {
			return o
		}
	}
	return nil
}

// claimsOf names a claim of the pod that is not there, and one that must be bound first and is
// not; both are empty where claims are not known.
func (w *World) claimsOf(p *v1.Pod) (missing, unbound string) {
	if !w.ClaimsKnown {
		return "", ""
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = p.Name + "-" + v.Name
		default:
			continue
		}
		claim := find(w.Claims, p.Namespace, name)
		switch {
		case claim == nil:
			return name, ""
		case claim.Status.Phase != v1.ClaimBound && !w.waitsForPod(claim):
			unbound = name
		}
	}
	return "", unbound
}

// lacksClaim reports whether a pod cannot be placed because of a claim that is missing or not bound.
func (w *World) lacksClaim(p *v1.Pod) bool {
	missing, unbound := w.claimsOf(p)
	return missing != "" || unbound != ""
}

// waitsForPod reports whether a claim is bound only once the scheduler has chosen a node.
func (w *World) waitsForPod(c *v1.PersistentVolumeClaim) bool {
	if c.Spec.StorageClassName == nil {
		return false
	}
	sc := find(w.StorageClasses, "", *c.Spec.StorageClassName)
	return sc != nil && sc.VolumeBindingMode != nil && *sc.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}
