// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
)

// settled is how long a container runs before its record must exist. Kubelet writes the record before the
// container starts, but the informer and the file are read at different times.
const settled = 10 * time.Second

// missing is a container that runs without a record of its devices. Kubelet lost the record, so it may
// allocate the same devices again.
type missing struct {
	pod       *v1.Pod
	container string
}

// unrecorded returns the containers without a record among the pods that request one of the resources.
func unrecorded(pods []*v1.Pod, records []kubelet.Record, resources []string, now time.Time) []missing {
	type key struct {
		uid       types.UID
		container string
	}
	have := make(map[key]bool, len(records))
	for _, r := range records {
		have[key{r.PodUID, r.Container}] = true
	}
	var out []missing
	for _, pod := range pods {
		if terminal(pod) || pod.Status.ExtendedResourceClaimStatus != nil { // devices of a DRA driver are not in this record
			continue
		}
		look := func(specs []v1.Container, statuses []v1.ContainerStatus) {
			for i := range statuses {
				s := &statuses[i]
				if s.State.Running == nil || now.Sub(s.State.Running.StartedAt.Time) < settled {
					continue
				}
				at := slices.IndexFunc(specs, func(c v1.Container) bool { return c.Name == s.Name })
				if at >= 0 && asks(&specs[at], resources) && !have[key{recordedUID(pod), s.Name}] {
					out = append(out, missing{pod, s.Name})
				}
			}
		}
		look(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
		look(pod.Spec.Containers, pod.Status.ContainerStatuses)
	}
	return out
}

func asks(c *v1.Container, resources []string) bool {
	return slices.ContainsFunc(resources, func(r string) bool {
		q, ok := c.Resources.Limits[v1.ResourceName(r)]
		return ok && !q.IsZero()
	})
}
