// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// isPart says whether an extended resource is a part of a GPU, by the names of NVIDIA's device
// plugin: a slice (nvidia.com/mig-1g.10gb), or a turn on a GPU that containers share
// (nvidia.com/gpu.shared).
func isPart(resource string) bool {
	name, ok := strings.CutPrefix(resource, "nvidia.com/")
	return ok && (strings.HasPrefix(name, "mig-") || strings.HasSuffix(name, ".shared"))
}

// refuseParts refuses a demand on links of a pod with a part of a GPU: a slice reaches no other
// GPU, and which GPU a part is of is for the device plugin to say, not for the scheduler. A
// resource that the profile chooses devices of is no part.
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
