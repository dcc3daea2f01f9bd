// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/membership"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// KeepManagers leaves the managed fields of an object that metering reads, and takes those of its
// subresources away. The cache has namespaces, nodes and pools so.
func KeepManagers(object any) (any, error) {
	o, err := meta.Accessor(object)
	if err != nil {
		return nil, fmt.Errorf("read %T: %w", object, err)
	}
	o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Subresource != "" }))
	return object, nil
}

// joined is since when a pod's devices are its tenant's, at the latest: when the last of pool, tenant's
// label and pool's labels was written. A pod that ran before that holds them from then on. A pod that was
// a tenant's, or chose the pool's nodes, when it was bound says so itself.
func joined(pod *v1.Pod, namespace *v1.Namespace, node *v1.Node, pool *v1alpha1.ComputePool) time.Time {
	since := pool.CreationTimestamp.Time
	// The scheduler gives the finalizer to pods in tenants' namespaces.
	if !slices.Contains(pod.Finalizers, names.FinalizerMetering) {
		since = later(since, writtenAt(namespace, "metadata", "labels", v1alpha1.LabelTenant))
	}
	// Kueue gives the labels of the pool's nodes to the pods that it admits.
	if membership.Selects(pool, pod.Spec.NodeSelector) {
		return since
	}
	for key := range membership.Selector(pool) {
		since = later(since, writtenAt(node, "metadata", "labels", key))
		since = later(since, writtenAt(pool, "spec", "nodeSelector", key))
	}
	return since
}

// writtenAt is when an owner of a field last wrote to the object, by the API server's clock. The field got
// its value at that time or before. It is zero where the field has no owner.
func writtenAt(o metav1.Object, path ...string) time.Time {
	var last time.Time
	for _, m := range o.GetManagedFields() {
		if m.Time != nil && m.FieldsV1 != nil && has(m.FieldsV1.Raw, path) {
			last = later(last, m.Time.Time)
		}
	}
	return last
}

// has reports whether a set of fields, in the API server's form, has the one at a path.
func has(set []byte, path []string) bool {
	for _, name := range path {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(set, &fields); err != nil {
			return false // of this part nothing is owned
		}
		next, ok := fields["f:"+name]
		if !ok {
			return false
		}
		set = next
	}
	return true
}
