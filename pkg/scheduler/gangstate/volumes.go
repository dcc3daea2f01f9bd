// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// maxVolumeShapes is how many shapes members may have because of the location of their volumes. Beyond
// that the location is found, node by node, from the plugin that refuses them.
const maxVolumeShapes = maxGangShapes / 2

// volumes has the nodes on which the bound volumes of members can be used. The zero value is all nodes.
type volumes struct {
	key string
	at  []*nodeaffinity.NodeSelector
}

// volumesOf reads where the volumes of a pod can be used.
func (b *build) volumesOf(pod *v1.Pod) (v volumes, err error) {
	if b.q.Volumes == nil || len(b.shapes) >= maxVolumeShapes || len(claimsOf(pod)) == 0 {
		return v, nil
	}
	selectors := b.q.Volumes(pod)
	if len(selectors) == 0 {
		return v, nil
	}
	for _, s := range selectors {
		parsed, err := nodeaffinity.NewNodeSelector(s)
		if err != nil {
			return volumes{}, fmt.Errorf("pod %s/%s: node affinity of its volume: %w", pod.Namespace, pod.Name, err)
		}
		v.at = append(v.at, parsed)
	}
	key, err := json.Marshal(selectors)
	if err != nil {
		return volumes{}, fmt.Errorf("pod %s/%s: node affinity of its volumes: %w", pod.Namespace, pod.Name, err)
	}
	v.key = string(key)
	return v, nil
}

// reach reports whether all of the volumes can be used on a node.
func (v *volumes) reach(node *v1.Node) bool {
	for _, s := range v.at {
		if !s.Match(node) {
			return false
		}
	}
	return true
}
