// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/equality"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// same reports whether an existing object has the wanted spec and labels. Additional labels are ignored.
func same(there, wanted client.Object) bool {
	for k, v := range wanted.GetLabels() {
		if there.GetLabels()[k] != v {
			return false
		}
	}
	return equality.Semantic.DeepEqual(specOf(there), specOf(wanted))
}

// specOf returns the part of an object that the pool owns: the whole spec, but of a flavor only its node
// labels. Kueue lets others add tolerations to a flavor.
func specOf(o client.Object) any {
	switch o := o.(type) {
	case *kueue.ResourceFlavor:
		return o.Spec.NodeLabels
	case *kueue.Cohort:
		return o.Spec
	case *kueue.ClusterQueue:
		return o.Spec
	case *kueue.LocalQueue:
		return o.Spec
	default:
		return nil
	}
}

// setSpec copies the part of wanted that the pool owns to o.
func setSpec(o, wanted client.Object) {
	switch w := wanted.(type) {
	case *kueue.ResourceFlavor:
		o.(*kueue.ResourceFlavor).Spec.NodeLabels = w.Spec.NodeLabels //nolint:forcetypeassert // both are of one kind
	case *kueue.Cohort:
		o.(*kueue.Cohort).Spec = w.Spec //nolint:forcetypeassert // as above
	case *kueue.ClusterQueue:
		o.(*kueue.ClusterQueue).Spec = w.Spec //nolint:forcetypeassert // as above
	case *kueue.LocalQueue:
		o.(*kueue.LocalQueue).Spec = w.Spec //nolint:forcetypeassert // as above
	}
}
