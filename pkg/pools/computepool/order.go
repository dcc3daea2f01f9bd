// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/resource"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/quota"
)

// Write is one object to create, change or delete.
type Write struct {
	Object client.Object
	Over   client.Object // the pool's existing object, to be changed; nil: none exists
	Delete bool
}

// Order returns the writes that bring a pool's Cohorts and ClusterQueues from old to now: for each
// resource in turn first those that shrink or are deleted, then those that grow or are new, so that the
// promised sum is never more than before or after. An object of which one resource shrinks and another
// grows is written twice. Unchanged objects are not written.
func Order(old, now []client.Object) []Write {
	state := map[string]client.Object{}
	for _, o := range old {
		state[keyOf(o)] = o
	}
	wanted := map[string]client.Object{}
	for _, o := range now {
		wanted[keyOf(o)] = o
	}
	var out []Write
	resources := resourcesOf(now)
	for i, r := range resources {
		for _, s := range quota.Order(promised(old, r), promised(now, r)) {
			key := s.Queue
			if key == "" {
				continue // the root Cohort is among the other objects
			}
			before, there := state[key]
			if s.Gone {
				if there && i == 0 {
					out = append(out, removal(before)...)
					delete(state, key)
				}
				continue
			}
			// The resources after r keep their old quotas until it is their turn.
			next := withQuotasOf(wanted[key], before, resources[i+1:])
			if !there || !same(before, next) {
				out = append(out, Write{Object: next, Over: before})
				state[key] = next
			}
		}
	}
	return out
}

// promised returns the nominal quotas of one resource in objects. The root Cohort is a queue like the
// others here: only sums matter.
func promised(objects []client.Object, r resourceName) quota.Division {
	d := quota.Division{}
	for _, o := range objects {
		q := quota.Queue{Name: keyOf(o)}
		if got := quotaIn(o, r); got != nil {
			q.Nominal = got.NominalQuota.Value()
		}
		d.Queues = append(d.Queues, q)
	}
	return d
}

// withQuotasOf returns a copy of o that has the quotas of before for the given resources, or none if
// before has none.
func withQuotasOf(o, before client.Object, resources []resourceName) client.Object {
	if len(resources) == 0 {
		return o
	}
	out, _ := o.DeepCopyObject().(client.Object)
	for _, r := range resources {
		q := quotaIn(out, r)
		if q == nil {
			continue
		}
		if got := quotaIn(before, r); got != nil {
			*q = *got.DeepCopy()
			continue
		}
		q.NominalQuota, q.LendingLimit = resource.Quantity{}, nil
	}
	return out
}

// quotaIn returns the quota of a resource; nil if the object has none.
func quotaIn(o client.Object, r resourceName) *kueue.ResourceQuota {
	for _, g := range groupsOf(o) {
		for i := range g.Flavors {
			for j := range g.Flavors[i].Resources {
				if g.Flavors[i].Resources[j].Name == r {
					return &g.Flavors[i].Resources[j]
				}
			}
		}
	}
	return nil
}

func groupsOf(o client.Object) []kueue.ResourceGroup {
	switch o := o.(type) {
	case *kueue.Cohort:
		return o.Spec.ResourceGroups
	case *kueue.ClusterQueue:
		return o.Spec.ResourceGroups
	default:
		return nil
	}
}

func resourcesOf(objects []client.Object) []resourceName {
	var out []resourceName
	for _, o := range objects {
		for _, g := range groupsOf(o) {
			for _, r := range g.CoveredResources {
				if !slices.Contains(out, r) {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// keyOf returns kind, namespace and name of an object as one key.
func keyOf(o client.Object) string {
	return kindOf(o) + "/" + o.GetNamespace() + "/" + o.GetName()
}

// named returns an object's kind and name for messages.
func named(o client.Object) string {
	if o.GetNamespace() == "" {
		return kindOf(o) + " " + o.GetName()
	}
	return kindOf(o) + " " + o.GetNamespace() + "/" + o.GetName()
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *kueue.ResourceFlavor:
		return kueue.ResourceFlavorKind
	case *kueue.Cohort:
		return kueue.CohortKind
	case *kueue.ClusterQueue:
		return kueue.ClusterQueueKind
	case *kueue.LocalQueue:
		return kueue.LocalQueueKind
	}
	return ""
}
