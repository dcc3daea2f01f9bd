// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvtopo/nvtopo/pkg/allocation"
)

// trusts reports whether the pod reads the scheduler's choice from one of our
// annotations: if it got other devices, it would find no GPU.
func (p *podView) trusts() bool { return len(p.reads) > 0 }

// exact reports whether the pod reads which container has which device, and not only a
// list for the whole pod.
func (p *podView) exact() bool {
	return slices.ContainsFunc(p.reads, func(key string) bool {
		switch key {
		case allocation.GPUIDsKey, allocation.GPUIDsAlias, allocation.Key:
			return true
		}
		return strings.HasPrefix(key, allocation.GPUIDsKey+".")
	})
}

// certain reports whether there is no doubt about who asks: a pod must not be refused
// because of another pod.
func (a *asker) certain() bool { return a != nil && a.source != sourceGuess && !a.ambiguous }

// inherits reports whether the container may have any device chosen for the pod:
// kubelet passes on the devices of plain init containers without asking, in random
// order.
func (a *asker) inherits(resource string) bool {
	if a.container.plain {
		return true
	}
	return !a.pod.exact() && slices.ContainsFunc(a.pod.containers, func(c containerView) bool { return c.plain && c.limits[resource] > 0 })
}

// right reports whether ids are what was chosen, or nothing was chosen.
func (a *asker) right(resource string, ids []string) bool {
	if a.want == nil || slices.Equal(a.want, physicals(ids)) {
		return true
	}
	return a.inherits(resource) && a.pod.wants(resource).hasAll(physicals(ids))
}

// misled refuses a pod that reads our annotations although nothing was chosen for it
// here: they are empty, or name devices of another node or pod.
func (a *asker) misled(resource string) error {
	if !a.certain() || !a.pod.trusts() || a.pod.chosen || a.want != nil {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition,
		"%s: pod %s reads its annotation %s, but has no GPU choice of the scheduler that is valid for it on this node",
		resource, a.pod.key(), strings.Join(a.pod.reads, " and "))
}

// unfit refuses devices that kubelet took by itself, or against our answer, if the
// container must have the chosen ones. The devices of an admitted pod never change,
// while a refused pod is created again.
func (f *facts) unfit(who *asker, strict bool) error {
	switch {
	case who == nil:
		return f.unseen(strict)
	case !who.certain() || (!strict && !who.pod.trusts()):
		return nil
	}
	if err := who.misled(f.q.resource); err != nil {
		return err
	}
	if who.right(f.q.resource, f.q.must) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "%s: kubelet took %v for container %s of pod %s by itself, but %v was chosen for it",
		f.q.resource, f.q.must, who.container.name, who.pod.key(), who.want)
}

// unseen refuses, in strict mode, a pod that neither the watch nor the API server
// showed: something may have been chosen for it.
func (f *facts) unseen(strict bool) error {
	if !strict || !f.unlisted {
		return nil
	}
	return status.Errorf(codes.Unavailable, "%s: cannot find out which pod asks for %d devices: the API server does not list the pods of the node",
		f.q.resource, f.q.size)
}
