// SPDX-License-Identifier: Apache-2.0

package gang

import (
	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// volumes looks up the volumes of pods.
type volumes struct {
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
}

// of returns the node selectors of a pod's bound volumes. Volumes that are not bound, or not known yet,
// are left to the plugins that bind volumes.
func (v *volumes) of(pod *v1.Pod) (at []*v1.NodeSelector) {
	for i := range pod.Spec.Volumes {
		source, name := &pod.Spec.Volumes[i], ""
		switch {
		case source.PersistentVolumeClaim != nil:
			name = source.PersistentVolumeClaim.ClaimName
		case source.Ephemeral != nil:
			name = pod.Name + "-" + source.Name
		default:
			continue
		}
		claim, err := v.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil || claim.Spec.VolumeName == "" {
			continue
		}
		volume, err := v.volumes.Get(claim.Spec.VolumeName)
		if err == nil && volume.Spec.NodeAffinity != nil && volume.Spec.NodeAffinity.Required != nil {
			at = append(at, volume.Spec.NodeAffinity.Required)
		}
	}
	return at
}
