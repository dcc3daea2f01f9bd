// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

// errStale says that an annotation speaks of another pod or node.
var errStale = errors.New("stale")

// choiceOf reads a pod's allocation annotation. It is valid only if it names this
// node and this pod: whatever else it says was decided for somebody else.
func choiceOf(pod *v1.Pod, text, node string) (*nodestate.Allocation, error) {
	a, err := nodestate.ParseAllocation(text)
	switch {
	case err != nil:
		return nil, err
	case a.PodUID != pod.UID:
		return nil, fmt.Errorf("%w %s: podUID is %q, this pod is %q", errStale, nodestate.AllocationKey, a.PodUID, pod.UID)
	case a.Node != node || pod.Spec.NodeName != node:
		return nil, fmt.Errorf("%w %s: node is %q, the pod runs on %q", errStale, nodestate.AllocationKey, a.Node, node)
	}
	return a, nil
}
