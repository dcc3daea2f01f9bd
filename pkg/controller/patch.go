// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

// patchBody is a merge patch that makes the pod's output annotations those wanted.
// UID and resource version make the API server refuse it for a pod that was made
// anew under the name, or has changed since it was read.
func patchBody(pod *v1.Pod, wanted map[string]string) ([]byte, error) {
	type meta struct {
		UID             types.UID          `json:"uid"`
		ResourceVersion string             `json:"resourceVersion"`
		Annotations     map[string]*string `json:"annotations"`
	}
	all := map[string]*string{}
	for key := range pod.Annotations {
		if nodestate.IsOutputKey(key) {
			all[key] = nil
		}
	}
	for key, value := range wanted {
		all[key] = &value
	}
	b, err := json.Marshal(struct {
		Metadata meta `json:"metadata"`
	}{meta{UID: pod.UID, ResourceVersion: pod.ResourceVersion, Annotations: all}})
	if err != nil {
		return nil, fmt.Errorf("encoding the annotations: %w", err)
	}
	return b, nil
}

// hasAliases reports whether the scheduler wrote the keys of other systems too.
func hasAliases(pod *v1.Pod) bool {
	for _, key := range []string{nodestate.GPUIDsAlias, nodestate.NUMANodeAlias} {
		if _, ok := pod.Annotations[key]; ok {
			return true
		}
	}
	return false
}
