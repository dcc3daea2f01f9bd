// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ErrNone is returned for a pod without an allocation, ErrOther for one with an allocation of another pod
// or node.
var (
	ErrNone  = errors.New("the pod carries no allocation")
	ErrOther = errors.New("the allocation is of another pod or node")
)

// Of returns a pod's allocation if it was made for this pod on this node. The error tells why there is no
// valid one: ErrNone, ErrOther, or why it cannot be read.
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

// Is reports whether the allocation was made for this pod on this node. A user who may write a pod can
// copy another pod's annotation, and a Binding that was carried out late leaves an allocation for another
// node: neither is an allocation of the pod.
func (a *Allocation) Is(uid types.UID, node string) bool { return a.PodUID == uid && a.Node == node }
