// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// promises are the assumed allocations that pods do not show yet, by pod.
type promises map[types.UID]nodestate.Promise

// show returns the pod as it will be once it shows its allocation. The pod is not changed.
func (p promises) show(pod *v1.Pod) *v1.Pod {
	promise, ok := p[pod.UID]
	if !ok || pod.Spec.NodeName != "" {
		return pod
	}
	out := *pod
	out.Spec.NodeName = promise.Node
	out.Annotations = maps.Clone(pod.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	maps.Copy(out.Annotations, promise.Annotations)
	return &out
}
