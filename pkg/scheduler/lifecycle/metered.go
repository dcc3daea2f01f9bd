// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// getsFinalizer reports whether the pod is to get the finalizer of metering, because it requests devices
// in a tenant's namespace. Without it, a pod that is bound and deleted while the pool controller is away
// is on no bill. The cache may not show the label of a new namespace yet. As a rule it does by then:
// Kueue admits workloads only through a queue that the pool controller made after it saw the label.
func getsFinalizer(pod *v1.Pod, namespaces corelisters.NamespaceLister) bool {
	if slices.Contains(pod.Finalizers, names.FinalizerMetering) || !units.AsksForDevices(pod) {
		return false
	}
	namespace, err := namespaces.Get(pod.Namespace)
	return err == nil && namespace.Labels[poolv1alpha1.LabelTenant] != ""
}
