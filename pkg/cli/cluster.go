// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	// clusterTimeout bounds a single request.
	clusterTimeout = 15 * time.Second
	// clusterQPS bounds the requests of a second: a cluster of 5000 nodes is labelled in some
	// two minutes.
	clusterQPS = 50
)

// clusterFlags say which cluster is meant.
type clusterFlags struct{ kubeconfig, context string }

func (c *clusterFlags) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default: KUBECONFIG, then ~/.kube/config)")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig")
}

// loader reads the kubeconfig when it is asked.
func (c *clusterFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context})
}

// ownNamespace is the given one, or else that of the kubeconfig's context.
func (c *clusterFlags) ownNamespace(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	namespace, _, err := c.loader().Namespace()
	if err != nil {
		return "", inputf("kubeconfig: %w", err)
	}
	return namespace, nil
}

func (c *clusterFlags) config() (*rest.Config, error) {
	config, err := c.loader().ClientConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = clusterTimeout
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// clusterClients are what the commands about a cluster's fabric use.
type clusterClients struct {
	kube kubernetes.Interface
	dyn  dynamic.Interface
}

func (c *clusterFlags) clients() (*clusterClients, error) {
	config, err := c.config()
	if err != nil {
		return nil, inputf("kubeconfig: %w", err)
	}
	config.QPS, config.Burst = clusterQPS, 2*clusterQPS
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, inputf("kubeconfig: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, inputf("kubeconfig: %w", err)
	}
	return &clusterClients{kube, dyn}, nil
}

// fetch reads the object of --node from the cluster of the kubeconfig.
func (s *source) fetch(ctx context.Context) (*v1alpha1.NodeGPUTopology, error) {
	flags := clusterFlags{s.kubeconfig, s.context}
	config, err := flags.config()
	if err != nil {
		return nil, inputf("--node %s: kubeconfig: %w", s.node, err)
	}
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
