// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// RefersToOutput reports whether a container or volume reads one of our output
// annotations through the downward API.
func RefersToOutput(spec *v1.PodSpec) bool { return len(OutputRefs(spec)) > 0 }

// OutputRefs returns the keys of our output annotations that containers or volumes
// read through the downward API, sorted and each once.
func OutputRefs(spec *v1.PodSpec) []string {
	var keys []string
	read := func(ref *v1.ObjectFieldSelector) {
		if key, ok := outputKey(ref); ok {
			keys = append(keys, key)
		}
	}
	files := func(items []v1.DownwardAPIVolumeFile) {
		for i := range items {
			read(items[i].FieldRef)
		}
	}
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, e := range containers[i].Env {
				if e.ValueFrom != nil {
					read(e.ValueFrom.FieldRef)
				}
			}
		}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.DownwardAPI != nil {
			files(v.DownwardAPI.Items)
		}
		if v.Projected == nil {
			continue
		}
		for _, src := range v.Projected.Sources {
			if src.DownwardAPI != nil {
				files(src.DownwardAPI.Items)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// outputKey returns the output annotation that a reference names. A reference to all annotations names
// none: it does not request a particular key.
func outputKey(ref *v1.ObjectFieldSelector) (key string, ok bool) {
	if ref == nil {
		return "", false
	}
	rest, ok := strings.CutPrefix(ref.FieldPath, "metadata.annotations")
	if !ok || rest == "" {
		return "", false
	}
	key = strings.Trim(rest, "[]'\"")
	return key, IsOutputKey(key)
}
