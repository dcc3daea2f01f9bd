// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// For every field manager the API server keeps when it last changed a field, in whole
// seconds. This shows whether a choice was wrong when it was made, or was right then.

// changes returns when the object's graph last changed, and when its GPUs' health did.
// The second is zero if it is not known.
func changes(t *v1alpha1.NodeGPUTopology) (graph, health time.Time) {
	graph = t.CreationTimestamp.Time
	for i := range t.ManagedFields {
		m := &t.ManagedFields[i]
		switch {
		case m.Subresource == "" && owns(m, "f:spec"):
			graph = later(graph, m.Time)
			health = later(health, m.Time) // a GPU that was partitioned
		case owns(m, "f:gpuHealth"):
			health = later(health, m.Time)
		}
	}
	return graph, health
}

// owns reports whether the entry may be about a field. The name could also be a value
// elsewhere in the entry. That can turn a violation into a note, but never a note into
// a violation.
func owns(m *metav1.ManagedFieldsEntry, field string) bool {
	return m.FieldsV1 != nil && bytes.Contains(m.FieldsV1.Raw, []byte(`"`+field+`"`))
}

func later(t time.Time, u *metav1.Time) time.Time {
	if u != nil && u.After(t) {
		return u.Time
	}
	return t
}

// boundAt is when the pod was bound, by the API server's clock; zero if the API server
// has not recorded it.
func boundAt(p *v1.Pod) time.Time {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// rewritten reports whether the pod's allocation was written after it was bound, which
// happens when kubelet gave it other GPUs. The sign is the field manager, or else the
// time.
func rewritten(p *v1.Pod) bool {
	at := boundAt(p)
	return slices.ContainsFunc(p.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		late := !at.IsZero() && m.Time != nil && m.Time.After(at)
		return m.Subresource == "" && (late || m.Manager == allocation.CorrectionManager) && owns(&m, "f:"+allocation.Key)
	})
}

// changedSince says which change explains that the pod's allocation no longer fits, or
// "". A scheduler has some time to hear of a change.
func (s *scene) changedSince(p *pod, at time.Time, what string) string {
	if at.Add(time.Second + s.w.lag()).After(p.alloc.Assumed) {
		return fmt.Sprintf("%s changed at %s, after the choice of %s or just before", what, stamp(at), stamp(p.alloc.Assumed))
	}
	if rewritten(p.Pod) {
		return "its GPUs are those that kubelet gave it, not those that were chosen"
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// inputsChanged says which of the pod's demands changed after since, or "".
func inputsChanged(p *v1.Pod, since time.Time) string {
	for i := range p.ManagedFields {
		m := &p.ManagedFields[i]
		if m.Subresource != "" || m.Time == nil || !m.Time.After(since) {
			continue
		}
		for _, key := range podrequest.InputKeys() {
			if owns(m, "f:"+key) {
				return fmt.Sprintf("%s was changed by %s at %s, after the choice", key, m.Manager, stamp(m.Time.Time))
			}
		}
	}
	return ""
}
