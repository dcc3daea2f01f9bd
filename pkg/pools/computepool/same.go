// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/equality"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// same says whether an object that is there says what it should. Labels of others do not matter.
func same(there, wanted client.Object) bool {
	for k, v := range wanted.GetLabels() {
		if there.GetLabels()[k] != v {
			return false
		}
	}
	return equality.Semantic.DeepEqual(specOf(there), specOf(wanted))
}

func specOf(o client.Object) any {
	switch o := o.(type) {
	case *kueue.ResourceFlavor:
		return o.Spec
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
