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

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	standInName = "nvtopo-simulated-agent"
	// standInVerb is in the shipped role of node agents and not in that of exporters. The other actions of a
	// simulated agent, writing a status and a Lease, are allowed by the shipped roles of exporters.
	standInVerb = "report-allocations"
)

// standInRole returns the additional role with which an exporter's account stands in for the node's
// agent, and the binding for one account. Nothing else of the agent's role is in it: apart from this, an
// account has the rights of a real cluster.
func standInRole(namespace, name string) (*rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding) {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: standInName, Labels: release.Labels()},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.GroupVersionResource.Resource}, Verbs: []string{standInVerb},
		}},
	}
	return role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: standInName + ":" + namespace + ":" + name, Labels: release.Labels()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
}

// standIn lets an account report for a simulated node, in place of its agent, that the node is enforced.
// It returns when the API server has the rights in effect.
func (c *Cluster) standIn(ctx context.Context, namespace, name string) error {
	kube, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	role, binding := standInRole(namespace, name)
	_, err = kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("let %s/%s stand in for the node agents: %w", namespace, name, err)
	}
	return poll(ctx, applyTimeout, name+" may stand in for the node agents", func(ctx context.Context) error {
		review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + namespace + ":" + name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: standInVerb, Group: v1alpha1.GroupName, Resource: v1alpha1.GroupVersionResource.Resource,
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
