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

// KeepManagers keeps those managed fields of an object that metering reads, and removes those of its
// subresources. It is the cache's transform for namespaces, nodes and pools.
func KeepManagers(object any) (any, error) {
	o, err := meta.Accessor(object)
	if err != nil {
		return nil, fmt.Errorf("read %T: %w", object, err)
	}
	o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Subresource != "" }))
	return object, nil
}

// joined returns the time from which on a pod's devices belong to its tenant, at the latest: when the
// last of pool, tenant's label and pool's labels was written. A pod that ran before that holds them from
// then on. A pod that was a tenant's, or selected the pool's nodes, when it was bound shows this itself.
func joined(pod *v1.Pod, namespace *v1.Namespace, node *v1.Node, pool *v1alpha1.ComputePool) time.Time {
	since := pool.CreationTimestamp.Time
	// The scheduler adds the finalizer to pods in tenants' namespaces.
	if !slices.Contains(pod.Finalizers, names.FinalizerMetering) {
		since = later(since, writtenAt(namespace, "metadata", "labels", v1alpha1.LabelTenant))
	}
	// Kueue adds the labels of the pool's nodes to the node selector of the pods that it admits.
	if membership.Selects(pool, pod.Spec.NodeSelector) {
		return since
	}
	for key := range membership.Selector(pool) {
		since = later(since, writtenAt(node, "metadata", "labels", key))
		since = later(since, writtenAt(pool, "spec", "nodeSelector", key))
	}
	return since
}

// writtenAt returns the time of the last write to the object by an owner of the field, by the API
// server's clock. The field got its value at that time or before. It is zero where the field has no
// owner.
func writtenAt(o metav1.Object, path ...string) time.Time {
	var last time.Time
	for _, m := range o.GetManagedFields() {
		if m.Time != nil && m.FieldsV1 != nil && has(m.FieldsV1.Raw, path) {
			last = later(last, m.Time.Time)
		}
	}
	return last
}

// has reports whether a set of fields, in the API server's form, contains the path.
func has(set []byte, path []string) bool {
	for _, name := range path {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(set, &fields); err != nil {
			return false // nothing below this path is owned
		}
		next, ok := fields["f:"+name]
		if !ok {
			return false
		}
		set = next
	}
	return true
}
