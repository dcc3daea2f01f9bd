// SPDX-License-Identifier: Apache-2.0

package podfinder

import (
	"errors"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// Reasons why an annotation, or a part of it, was not used (label reason).
const (
	IgnoredMalformed = "malformed"
	IgnoredStale     = "stale" // for another node or pod
	IgnoredCount     = "count" // not as many devices as the container's limit
)

// mirrorHashKey is an annotation of a static pod's mirror pod. Its value is the UID under which kubelet
// knows the static pod.
const mirrorHashKey = "kubernetes.io/config.hash"

// Pod is steering's view of one pod of the node; immutable.
type Pod struct {
	UID             types.UID // kubelet's UID, which for a static pod is not its mirror's
	Namespace, Name string
	Created         time.Time
	Version         uint64 // resourceVersion: orders waiting pods by when they were bound
	Deleting        bool
	Started         bool // kubelet has reported containers, so it was admitted once
	Terminal        bool
	Reads           []string // nvtopo's annotations that it reads; makes it strict
	Chosen          bool     // it has a choice for this pod on this node, and all of it can be used
	Containers      []Container
}

// Container is one container that requests devices. Containers are in the order in which kubelet serves
// them: init containers first.
type Container struct {
	Name    string
	Running bool                // as last reported; a running container makes no request
	Plain   bool                // plain init container: its devices pass on to later containers
	Limits  map[string]int      // resource -> devices, above 0
	Want    map[string][]string // resource -> physical ids chosen by the scheduler, sorted
}

// Key returns namespace/name.
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// wants returns all devices of one resource that were chosen for the pod.
func (p *Pod) wants(resource string) question.Set {
	s := question.Set{}
	for i := range p.Containers {
		s.Add(p.Containers[i].Want[resource])
	}
	return s
}

// PodOf returns the view of a pod on this node. ignore is called for each reason why its annotation, or a
// part of it, is not used.
func PodOf(pod *v1.Pod, node string, ignore func(reason string)) *Pod {
	p := &Pod{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Created: pod.CreationTimestamp.Time,
		Deleting: pod.DeletionTimestamp != nil,
		Started:  len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses) > 0,
		Terminal: pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed,
		Reads:    allocation.OutputRefs(&pod.Spec),
	}
	if hash := pod.Annotations[mirrorHashKey]; hash != "" && pod.Annotations[v1.MirrorPodAnnotationKey] != "" {
		p.UID = types.UID(hash)
	}
	// The version only sets the order of queries, so one that is not a number does no harm.
	p.Version, _ = strconv.ParseUint(pod.ResourceVersion, 10, 64)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		p.addContainer(pod, c, c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways)
	}
	for i := range pod.Spec.Containers {
		p.addContainer(pod, &pod.Spec.Containers[i], false)
	}
	for _, st := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for i := range p.Containers {
			p.Containers[i].Running = p.Containers[i].Running || (p.Containers[i].Name == st.Name && st.State.Running != nil)
		}
	}
	if len(p.Containers) > 0 {
		p.readAnnotation(pod, node, ignore)
	}
	return p
}

// addContainer adds the container with the limits that kubelet might request from a plugin. Kubelet uses
// limits, and leaves out resources that DRA has already provided.
func (p *Pod) addContainer(pod *v1.Pod, c *v1.Container, plain bool) {
	limits := map[string]int{}
	for name, q := range c.Resources.Limits {
		if name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage {
			continue
		}
		if n := int(q.Value()); n > 0 && !providedByDRA(pod, c.Name, string(name)) {
			limits[string(name)] = n
		}
	}
	if len(limits) > 0 {
		p.Containers = append(p.Containers, Container{Name: c.Name, Plain: plain, Limits: limits, Want: map[string][]string{}})
	}
}

func providedByDRA(pod *v1.Pod, container, resource string) bool {
	claims := pod.Status.ExtendedResourceClaimStatus
	return claims != nil && slices.ContainsFunc(claims.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == resource
	})
}

// readAnnotation adopts the allocation, if it is for this pod on this node. Any other is ignored: the
// verifier reports it to the user.
func (p *Pod) readAnnotation(pod *v1.Pod, node string, ignore func(reason string)) {
	a, err := allocation.Of(pod, node)
	switch {
	case errors.Is(err, allocation.ErrNone):
	case errors.Is(err, allocation.ErrOther):
		ignore(IgnoredStale)
	case err != nil:
		ignore(IgnoredMalformed)
	default:
		p.Chosen = true
		p.take(a, func() {
			p.Chosen = false
			ignore(IgnoredCount)
		})
	}
}

// take sets the chosen devices of each container. misfit is called for each container with another
// request.
func (p *Pod) take(a *allocation.Allocation, misfit func()) {
	for i := range a.Containers {
		chosen := &a.Containers[i]
		j := slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == chosen.Name })
		if j < 0 || p.Containers[j].Limits[chosen.Resource] != len(chosen.GPUs) {
			misfit()
			continue
		}
		p.Containers[j].Want[chosen.Resource] = question.Sorted(chosen.GPUs)
	}
}
