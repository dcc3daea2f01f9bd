// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Kept is how much of one resource of its node is kept for the members of a gang that has waited
// for long. Others may use what the node has free beside it. Immutable; make it with NewKept.
type Kept struct {
	Gang     string    // the gang's key
	Priority int32     // of the gang: who has a higher one may use it
	Made     time.Time // when the gang became complete: who is not younger may use it, too
	Resource v1.ResourceName
	Count    int64 // devices, thousandths of a CPU, or bytes

	namespace   string // of the gang
	own, others saying // what people of that namespace read, and those of others
}

// saying is what people read. It is made with the Kept: Filter makes no text for each node.
type saying struct{ why, gang string }

// NewKept returns k for a gang. why follows the gang's name in messages. Other namespaces do not learn
// that name.
func NewKept(gang gangrequest.Key, k Kept, why string) *Kept {
	say := func(name string) saying {
		return saying{gang: name + ", " + why, why: string(k.Resource) + " of the node is kept for " + name + ", " + why}
	}
	k.Gang, k.namespace = gang.String(), gang.Namespace
	k.own, k.others = say(k.Gang), say(gang.NameIn(""))
	return &k
}

// Less returns k without what is held of it; nil if nothing is left.
func (k *Kept) Less(held int64) *Kept {
	switch {
	case held <= 0:
		return k
	case held >= k.Count:
		return nil
	}
	rest := *k
	rest.Count -= held
	return &rest
}

func (k *Kept) saidIn(namespace string) *saying {
	if namespace == k.namespace {
		return &k.own
	}
	return &k.others
}

// Why is what a pod of a namespace is told that is kept out. It allocates nothing.
func (k *Kept) Why(namespace string) string { return k.saidIn(namespace).why }

// For says for which gang it is kept and why, to people of a namespace.
func (k *Kept) For(namespace string) string { return k.saidIn(namespace).gang }

// keepsOut reports whether somebody of that priority, who was made then, is to leave it free.
func (k *Kept) keepsOut(priority int32, made time.Time) bool {
	return priority <= k.Priority && made.After(k.Made)
}

// AmountOf is how much of a resource a pod requests.
func AmountOf(r *podrequest.Request, name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.MilliCPU
	case v1.ResourceMemory:
		return r.Memory
	case v1.ResourceEphemeralStorage:
		return r.EphemeralStorage
	default:
		return r.Scalars[name]
	}
}

// AmountIn is how much of a resource a node has, or pods on it request.
func AmountIn(r fwk.Resource, name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.GetMilliCPU()
	case v1.ResourceMemory:
		return r.GetMemory()
	case v1.ResourceEphemeralStorage:
		return r.GetEphemeralStorage()
	default:
		return r.GetScalarResources()[name]
	}
}
