// SPDX-License-Identifier: Apache-2.0

package podfinder

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// Trusts reports whether the pod reads the scheduler's choice from one of nvtopo's annotations: with
// other devices, it would find no GPU.
func (p *Pod) Trusts() bool { return len(p.Reads) > 0 }

// exact reports whether the pod reads the devices of each container, and not only a list for the whole
// pod.
func (p *Pod) exact() bool {
	return slices.ContainsFunc(p.Reads, func(key string) bool {
		switch key {
		case allocation.GPUIDsKey, allocation.GPUIDsAlias, allocation.Key:
			return true
		}
		return strings.HasPrefix(key, allocation.GPUIDsKey+".")
	})
}

// certain reports whether the requesting container is known without doubt: a pod must not be rejected
// because of another pod.
func (a *Asker) certain() bool { return a != nil && a.Source != SourceGuess && !a.Ambiguous }

// Inherits reports whether the container may have any device chosen for the pod: kubelet passes on the
// devices of plain init containers without a request, in random order.
func (a *Asker) Inherits(resource string) bool {
	if a.Container.Plain {
		return true
	}
	return !a.Pod.exact() && slices.ContainsFunc(a.Pod.Containers, func(c Container) bool { return c.Plain && c.Limits[resource] > 0 })
}

// Right reports whether ids are the chosen devices, or none were chosen.
func (a *Asker) Right(resource string, ids []string) bool {
	if a.Want == nil || slices.Equal(a.Want, question.Physicals(ids)) {
		return true
	}
	return a.Inherits(resource) && a.Pod.wants(resource).HasAll(question.Physicals(ids))
}

// Misled rejects a pod that reads nvtopo's annotations although no devices were chosen for it here: they
// are empty, or name devices of another node or pod.
func (a *Asker) Misled(resource string) error {
	if !a.certain() || !a.Pod.Trusts() || a.Pod.Chosen || a.Want != nil {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition,
		"%s: pod %s reads its annotation %s, but has no GPU choice of the scheduler that is valid for it on this node",
		resource, a.Pod.Key(), strings.Join(a.Pod.Reads, " and "))
}

// Unfit rejects devices that kubelet took by itself, or against the agent's answer, if the container must
// have the chosen ones. The devices of an admitted pod never change, while a rejected pod is created
// again.
func (f *Facts) Unfit(who *Asker, strict bool) error {
	switch {
	case who == nil:
		return f.Unseen(strict)
	case !who.certain() || (!strict && !who.Pod.Trusts()):
		return nil
	}
	if err := who.Misled(f.Question.Resource); err != nil {
		return err
	}
	if who.Right(f.Question.Resource, f.Question.Must) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "%s: kubelet took %v for container %s of pod %s by itself, but %v was chosen for it",
		f.Question.Resource, f.Question.Must, who.Container.Name, who.Pod.Key(), who.Want)
}

// Unseen rejects, in strict mode, a pod that neither the watch nor the API server showed: devices may
// have been chosen for it.
func (f *Facts) Unseen(strict bool) error {
	if !strict || !f.Unlisted {
		return nil
	}
	return status.Errorf(codes.Unavailable, "%s: cannot find out which pod asks for %d devices: the API server does not list the pods of the node",
		f.Question.Resource, f.Question.Size)
}
