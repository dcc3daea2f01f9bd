// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// isPart reports whether an extended resource is a part of a GPU, by the names of NVIDIA's device plugin:
// a slice (nvidia.com/mig-1g.10gb), or a share of a GPU in time (nvidia.com/gpu.shared).
func isPart(resource string) bool {
	name, ok := strings.CutPrefix(resource, "nvidia.com/")
	return ok && (strings.HasPrefix(name, "mig-") || strings.HasSuffix(name, ".shared"))
}

// refuseParts refuses a demand on links of a pod with a part of a GPU: a slice has no link to another GPU,
// and the device plugin, not the scheduler, chooses the GPU of a part. A resource that is chosen by the
// profile is no part.
func (r *Request) refuseParts(pod *v1.Pod, chosen []string) error {
	key := ""
	switch {
	case r.Constraint.MinLink != (nvtopo.Class{}):
		key = MinLinkKey
	case r.Constraint.MinBandwidth > 0:
		key = MinBandwidthKey
	default:
		return nil
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name, n := range list[i].Resources.Requests {
				if n.Sign() > 0 && isPart(string(name)) && !slices.Contains(chosen, string(name)) {
					return fmt.Errorf("annotation %s: container %s asks for %s, a part of a GPU, which has no links", key, list[i].Name, name)
				}
			}
		}
	}
	return nil
}
