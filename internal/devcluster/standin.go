// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// agentRole is the shipped ClusterRole of node agents.
const agentRole = "nvtopo-node-agent"

// standIn lets an account do for a simulated node what its agent would: say that
// the node is enforced. It returns when the API server knows.
func (c *Cluster) standIn(ctx context.Context, namespace, name string) error {
	kube, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "nvtopo-simulated-agent:" + namespace + ":" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: agentRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	if _, err := kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("let %s/%s stand in for the node agents: %w", namespace, name, err)
	}
	return poll(ctx, applyTimeout, name+" may stand in for the node agents", func(ctx context.Context) error {
		review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + namespace + ":" + name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "report-allocations", Group: v1alpha1.GroupName, Resource: v1alpha1.GroupVersionResource.Resource,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		if !review.Status.Allowed {
			return errors.New("not yet")
		}
		return nil
	})
}
