// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvtopo/nvtopo/pkg/allocation"
)

// trusts reports whether the pod reads what was chosen for it in an annotation of
// ours: with other devices it would find none.
func (p *podView) trusts() bool { return len(p.reads) > 0 }

// exact reports whether the pod reads which container has which device, and not
// only something of all of them.
func (p *podView) exact() bool {
	return slices.ContainsFunc(p.reads, func(key string) bool {
		switch key {
		case allocation.GPUIDsKey, allocation.GPUIDsAlias, allocation.Key:
			return true
		}
		return strings.HasPrefix(key, allocation.GPUIDsKey+".")
	})
}

// certain reports whether it is beyond doubt who asks: a pod must not be refused
// for what is wrong with another.
func (a *asker) certain() bool { return a != nil && a.source != sourceGuess && !a.ambiguous }

// inherits reports whether any device chosen for the pod will do for the container:
// kubelet passes on those of plain init containers without asking, at random.
func (a *asker) inherits(resource string) bool {
	if a.container.plain {
		return true
	}
	return !a.pod.exact() && slices.ContainsFunc(a.pod.containers, func(c containerView) bool { return c.plain && c.limits[resource] > 0 })
}

// right reports whether ids are what was chosen.
func (a *asker) right(resource string, ids []string) bool {
	if a.want == nil || slices.Equal(a.want, physicals(ids)) {
		return true
	}
	return a.inherits(resource) && a.pod.wants(resource).hasAll(physicals(ids))
}

// misled refuses a pod that reads our annotations although nobody chose for it
// here: they are empty, or tell of devices of another node or pod.
func (a *asker) misled(resource string) error {
	if !a.certain() || !a.pod.trusts() || a.pod.chosen || a.want != nil {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition,
		"%s: pod %s reads its annotation %s, but carries no choice of the GPU scheduler that holds for it on this node",
		resource, a.pod.key(), strings.Join(a.pod.reads, " and "))
}

// unfit refuses devices that kubelet took unasked, or against our answer, if the
// container may have no others. Devices of an admitted pod never change, while a
// pod that is refused is made anew.
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
