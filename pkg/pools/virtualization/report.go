// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// fieldOwner owns one condition of the pool and nothing else: the rest of status is another
// controller's.
const fieldOwner = names.FieldOwner + "-virtualization"

// report writes or removes the condition, if that changes anything.
func (r *reconciler) report(ctx context.Context, pool *v1alpha1.ComputePool, c *metav1.Condition) error {
	old := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionVirtualizationApplied)
	if c == nil && old == nil {
		return nil
	}
	mine := []any{} // not absent: the API server would store a status without fields as null
	if c != nil {
		conditions := append([]metav1.Condition(nil), pool.Status.Conditions...)
		if !meta.SetStatusCondition(&conditions, *c) {
			return nil
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(
			meta.FindStatusCondition(conditions, v1alpha1.ConditionVirtualizationApplied))
		if err != nil {
			return fmt.Errorf("write the condition of pool %s: %w", pool.Name, err)
		}
		mine = append(mine, fields)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": mine}}}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.ComputePoolKind))
	u.SetName(pool.Name)
	err := r.Status().Patch(ctx, u, client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the condition of pool %s: %w", pool.Name, err)
	}
	return nil
}
