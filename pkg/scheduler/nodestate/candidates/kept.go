// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Kept is an amount of one resource of its node that is kept for the members of a gang that has waited
// for long. Others may use the rest of the node. Immutable; make it with NewKept.
type Kept struct {
	Gang     string    // the gang's key
	Priority int32     // of the gang: pods with a higher one may use it
	Made     time.Time // when the gang became complete: pods that are not younger may use it, too
	Resource v1.ResourceName
	Count    int64 // devices, thousandths of a CPU, or bytes

	namespace   string // of the gang
	own, others saying // texts for people of that namespace, and of others
}

// saying has the texts for people. It is made with the Kept, so that Filter makes no text for each node.
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

// Less returns k with held subtracted from its amount; nil if nothing is left.
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

// Why returns the message for a pod of a namespace that is kept out. It does not allocate memory.
func (k *Kept) Why(namespace string) string { return k.saidIn(namespace).why }

// For returns the name of the gang and the reason, for people of a namespace.
func (k *Kept) For(namespace string) string { return k.saidIn(namespace).gang }

// keepsOut reports whether a pod of that priority and creation time must leave it free.
func (k *Kept) keepsOut(priority int32, made time.Time) bool {
	return priority <= k.Priority && made.After(k.Made)
}

// AmountOf returns how much of a resource a pod requests.
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

// AmountIn returns the amount of one resource in r.
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
