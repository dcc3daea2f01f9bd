// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// errStale means that an annotation is about another pod or node. errMoved means that it is about this
// pod on another node.
var (
	errStale = errors.New("stale")
	errMoved = fmt.Errorf("%w", errStale)
)

// choiceOf parses a pod's allocation annotation. It is valid only if it names this node and this pod. An
// annotation of this pod for another node, which a late Binding leaves behind, is returned with an error:
// kubelet cannot give these devices, so they are reported as reassigned, and the annotation is corrected
// to the record.
func choiceOf(pod *v1.Pod, text, node string) (*allocation.Allocation, error) {
	a, err := allocation.Parse(text)
	switch {
	case err != nil:
		return nil, err
	case a.PodUID != pod.UID:
		return nil, fmt.Errorf("%w %s: podUID is %q, this pod is %q", errStale, allocation.Key, a.PodUID, pod.UID)
	case pod.Spec.NodeName != node:
		return nil, fmt.Errorf("%w %s: the pod is on node %q, not on %q", errStale, allocation.Key, pod.Spec.NodeName, node)
	case a.Node != node:
		return a, fmt.Errorf("%w %s: node is %q, the pod runs on %q", errMoved, allocation.Key, a.Node, node)
	}
	return a, nil
}
