// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
)

// probePrefix begins the name of the policy, its binding, and the ConfigMap that it refuses.
const probePrefix = "devcluster-policy-probe-"

// waitPolicies waits until the API server enforces every admission policy created before the call. The
// server has no status for that (a controller elsewhere only type-checks), so one more policy is created
// last and probed: the server rebuilds its whole set of policies from two caches, each of which sees
// objects in the order of creation, so that once the last policy and the last binding are enforced, all
// are.
func (a *applier) waitPolicies(ctx context.Context) error {
	const group = "admissionregistration.k8s.io/v1"
	// A new name each time: the server may still enforce the policy of the call before, which is deleted.
	probeName := probePrefix + rand.String(8)
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group, "kind": "ValidatingAdmissionPolicy",
		"metadata": map[string]any{"name": probeName},
		"spec": map[string]any{
			"failurePolicy": "Fail",
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"},
				"resources": []any{"configmaps"}, "resourceNames": []any{probeName},
			}}},
			"validations": []any{map[string]any{"expression": "false", "message": probeName}},
		},
	}}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding",
		"metadata": map[string]any{"name": probeName},
		"spec":     map[string]any{"policyName": probeName, "validationActions": []any{"Deny"}},
	}}
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": probeName, "namespace": metav1.NamespaceDefault},
	}}
	for _, o := range []*unstructured.Unstructured{policy, binding} {
		if err := a.apply(ctx, o); err != nil {
			return err
		}
	}
	configMaps, err := a.resource(probe)
	if err != nil {
		return err
	}
	err = poll(ctx, applyTimeout, "the admission policies are enforced", func(ctx context.Context) error {
		_, err := configMaps.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return errors.New("not yet")
		case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
			return nil
		}
		return fmt.Errorf("probe: %w", err)
	})
	for _, o := range []*unstructured.Unstructured{binding, policy} {
		r, rerr := a.resource(o)
		if rerr == nil {
			rerr = r.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		}
		err = errors.Join(err, rerr)
	}
	return err
}
