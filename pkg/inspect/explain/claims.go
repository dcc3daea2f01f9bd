// SPDX-License-Identifier: Apache-2.0

package explain

import (
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

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
		claim := w.claim(p.Namespace, name)
		switch {
		case claim == nil:
			return name, ""
		case claim.Status.Phase != v1.ClaimBound && !w.waitsForPod(claim):
			unbound = name
		}
	}
	return "", unbound
}

func (w *World) claim(namespace, name string) *v1.PersistentVolumeClaim {
	for i := range w.Claims {
		if c := &w.Claims[i]; c.Namespace == namespace && c.Name == name {
			return c
		}
	}
	return nil
}

// waitsForPod reports whether a claim is bound only once the scheduler has chosen a node.
func (w *World) waitsForPod(c *v1.PersistentVolumeClaim) bool {
	if c.Spec.StorageClassName == nil {
		return false
	}
	for i := range w.StorageClasses {
		if sc := &w.StorageClasses[i]; sc.Name == *c.Spec.StorageClassName {
			return sc.VolumeBindingMode != nil && *sc.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
		}
	}
	return false
}
