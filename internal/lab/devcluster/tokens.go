// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// tokenSeconds is how long a token lasts: a day, more than any demo or test.
const tokenSeconds = 24 * 60 * 60

// ServiceAccountConfig returns a configuration that authenticates as a service account.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	return c.tokenConfig(ctx, namespace, name, nil)
}

// NodeBoundConfig returns a configuration that authenticates as a service
// account with a token bound to a node, as a DaemonSet pod's token is.
func (c *Cluster) NodeBoundConfig(ctx context.Context, namespace, name, node string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the node to bind a token to: %w", err)
	}
	return c.tokenConfig(ctx, namespace, name, &authenticationv1.BoundObjectReference{
		Kind: "Node", APIVersion: v1.SchemeGroupVersion.String(), Name: n.Name, UID: n.UID,
	})
}

func (c *Cluster) tokenConfig(ctx context.Context, namespace, name string, bound *authenticationv1.BoundObjectReference) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	seconds := int64(tokenSeconds)
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: bound},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make a token of %s/%s: %w", namespace, name, err)
	}
	cfg := c.RESTConfig()
	cfg.CertData, cfg.KeyData = nil, nil
	cfg.BearerToken = token.Status.Token
	return cfg, nil
}
