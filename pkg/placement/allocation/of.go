// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ErrNone says that a pod carries no allocation, ErrOther that it carries one of another
// pod or node.
var (
	ErrNone  = errors.New("the pod carries no allocation")
	ErrOther = errors.New("the allocation is of another pod or node")
)

// Of returns the allocation that a pod carries if it is the pod's own on this node. The
// error says why there is none that counts: ErrNone, ErrOther, or that it cannot be read.
func Of(pod *v1.Pod, node string) (*Allocation, error) {
	text, ok := pod.Annotations[Key]
	if !ok {
		return nil, ErrNone
	}
	a, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if !a.Is(pod.UID, node) {
		return nil, ErrOther
	}
	return a, nil
}

// Is reports whether the allocation is of this very pod on this node. Whoever may write a
// pod may copy another pod's annotation, and a Binding that was carried out late leaves a
// choice for another node: neither says anything about the pod.
func (a *Allocation) Is(uid types.UID, node string) bool { return a.PodUID == uid && a.Node == node }
