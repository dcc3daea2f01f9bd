// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// RefersToOutput reports whether a container or volume reads one of our output
// annotations through the downward API.
func RefersToOutput(spec *v1.PodSpec) bool {
	inEnv := func(cs []v1.Container) bool {
		return slices.ContainsFunc(cs, func(c v1.Container) bool {
			return slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool {
				return e.ValueFrom != nil && isOutputRef(e.ValueFrom.FieldRef)
			})
		})
	}
	if inEnv(spec.InitContainers) || inEnv(spec.Containers) {
		return true
	}
	downward := func(items []v1.DownwardAPIVolumeFile) bool {
		return slices.ContainsFunc(items, func(f v1.DownwardAPIVolumeFile) bool { return isOutputRef(f.FieldRef) })
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.DownwardAPI != nil && downward(v.DownwardAPI.Items) {
			return true
		}
		if v.Projected == nil {
			continue
		}
		for _, src := range v.Projected.Sources {
			if src.DownwardAPI != nil && downward(src.DownwardAPI.Items) {
				return true
			}
		}
	}
	return false
}

// isOutputRef reports whether a reference names one of our output annotations. A
// volume of all annotations is not one: who mounts everything asks for nothing.
func isOutputRef(ref *v1.ObjectFieldSelector) bool {
	if ref == nil {
		return false
	}
	rest, ok := strings.CutPrefix(ref.FieldPath, "metadata.annotations")
	if !ok {
		return false
	}
	key := strings.Trim(rest, "[]'\"")
	return rest != "" && IsOutputKey(key)
}
