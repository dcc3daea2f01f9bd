// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// clusterTimeout bounds the single request.
const clusterTimeout = 15 * time.Second

// fetch reads the object of --node from the cluster of the kubeconfig.
func (s *source) fetch(ctx context.Context) (*v1alpha1.NodeGPUTopology, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: s.context}).ClientConfig()
	if err != nil {
		return nil, inputf("--node %s: kubeconfig: %w", s.node, err)
	}
	config.Timeout = clusterTimeout
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, inputf("--node %s: kubeconfig: %w", s.node, err)
	}
	u, err := client.Resource(v1alpha1.GroupVersionResource).Get(ctx, s.node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, inputf("--node %s: the cluster %s has no NodeGPUTopology of that name; does the exporter run on that node? (%w)",
			s.node, config.Host, err)
	case err != nil:
		return nil, inputf("--node %s: cluster %s: %w", s.node, config.Host, err)
	}
	var obj v1alpha1.NodeGPUTopology
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &obj); err != nil {
		return nil, inputf("--node %s: %w", s.node, err)
	}
	return &obj, nil
}
