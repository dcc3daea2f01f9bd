// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"errors"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/allocation"
)

// Why an annotation, or a part of it, was not used (label reason).
const (
	ignoredMalformed = "malformed"
	ignoredStale     = "stale" // for another node or pod
	ignoredCount     = "count" // not as many devices as the container's limit
)

// mirrorHashKey is set on the mirror pod of a static pod. Its value is the UID under
// which kubelet knows the static pod.
const mirrorHashKey = "kubernetes.io/config.hash"

// podView is what steering needs of one pod of the node; immutable.
type podView struct {
	uid             types.UID // kubelet's UID, which for a static pod is not its mirror's
	namespace, name string
	created         time.Time
	version         uint64 // resourceVersion: orders waiting pods by when they were bound
	deleting        bool
	started         bool // kubelet has reported containers, so it was admitted once
	terminal        bool
	reads           []string // the annotations of ours that it reads; makes it strict
	chosen          bool     // it has a choice for this pod on this node, and all of it can be used
	containers      []containerView
}

// containerView is one container that asks for devices. Containers are in the order in
// which kubelet serves them: init containers first.
type containerView struct {
	name    string
	running bool                // as last reported; a running container does not ask
	plain   bool                // plain init container: its devices pass on to later containers
	limits  map[string]int      // resource -> devices, above 0
	want    map[string][]string // resource -> physical ids chosen by the scheduler, sorted
}

func (p *podView) key() string { return p.namespace + "/" + p.name }

// wants returns all devices of one resource that were chosen for the pod.
func (p *podView) wants(resource string) idSet {
	s := idSet{}
	for i := range p.containers {
		s.add(p.containers[i].want[resource])
	}
	return s
}

// viewOf is what is needed of a pod on this node. ignore is called for each reason why
// its annotation, or a part of it, is not used.
func viewOf(pod *v1.Pod, node string, ignore func(reason string)) *podView {
	p := &podView{
		uid: pod.UID, namespace: pod.Namespace, name: pod.Name, created: pod.CreationTimestamp.Time,
		deleting: pod.DeletionTimestamp != nil,
		started:  len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses) > 0,
		terminal: pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed,
		reads:    allocation.OutputRefs(&pod.Spec),
	}
	if hash := pod.Annotations[mirrorHashKey]; hash != "" && pod.Annotations[v1.MirrorPodAnnotationKey] != "" {
		p.uid = types.UID(hash)
	}
	// The version only sets the order of asking, so one that is not a number does no
	// harm.
	p.version, _ = strconv.ParseUint(pod.ResourceVersion, 10, 64)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		p.addContainer(pod, c, c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways)
	}
	for i := range pod.Spec.Containers {
		p.addContainer(pod, &pod.Spec.Containers[i], false)
	}
	for _, st := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for i := range p.containers {
			p.containers[i].running = p.containers[i].running || (p.containers[i].name == st.Name && st.State.Running != nil)
		}
	}
	if len(p.containers) > 0 {
		p.readAnnotation(pod, node, ignore)
	}
	return p
}

// addContainer keeps the limits that kubelet might ask a plugin for. Kubelet uses
// limits, and leaves out what DRA has already provided.
func (p *podView) addContainer(pod *v1.Pod, c *v1.Container, plain bool) {
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
		p.containers = append(p.containers, containerView{name: c.Name, plain: plain, limits: limits, want: map[string][]string{}})
	}
}

func providedByDRA(pod *v1.Pod, container, resource string) bool {
	claims := pod.Status.ExtendedResourceClaimStatus
	return claims != nil && slices.ContainsFunc(claims.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == resource
	})
}

// readAnnotation takes over what the scheduler chose, if it chose for this pod on this
// node. Anything else is ignored: the verifier reports it to the user.
func (p *podView) readAnnotation(pod *v1.Pod, node string, ignore func(reason string)) {
	a, err := allocation.Of(pod, node)
	switch {
	case errors.Is(err, allocation.ErrNone):
	case errors.Is(err, allocation.ErrOther):
		ignore(ignoredStale)
	case err != nil:
		ignore(ignoredMalformed)
	default:
		p.chosen = true
		p.take(a, func() {
			p.chosen = false
			ignore(ignoredCount)
		})
	}
}

// take takes over what was chosen for each container. misfit is called for each
// container that asks for something else.
func (p *podView) take(a *allocation.Allocation, misfit func()) {
	for i := range a.Containers {
		chosen := &a.Containers[i]
		j := slices.IndexFunc(p.containers, func(c containerView) bool { return c.name == chosen.Name })
		if j < 0 || p.containers[j].limits[chosen.Resource] != len(chosen.GPUs) {
			misfit()
			continue
		}
		p.containers[j].want[chosen.Resource] = sortedCopy(chosen.GPUs)
	}
}
