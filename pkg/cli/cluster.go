// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

const (
	// clusterTimeout bounds a single request.
	clusterTimeout = 15 * time.Second
	// clusterQPS bounds the requests per second: a cluster of 5000 nodes is labelled in some two minutes.
	clusterQPS = 50
)

// clusterFlags select a cluster.
type clusterFlags struct{ kubeconfig, context string }

func (c *clusterFlags) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default: KUBECONFIG, then ~/.kube/config)")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig")
}

// loader returns a kubeconfig that is read when it is used.
func (c *clusterFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context})
}

// ownNamespace returns the given namespace, or else that of the kubeconfig's context.
func (c *clusterFlags) ownNamespace(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	namespace, _, err := c.loader().Namespace()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return "", inputf("kubeconfig: %w", errNoKubeconfig)
	case err != nil:
		return "", inputf("kubeconfig: %w", err)
	}
	return namespace, nil
}

// errNoKubeconfig replaces client-go's error, which advises to set KUBERNETES_MASTER.
var errNoKubeconfig = errors.New("there is none, neither in KUBECONFIG nor at ~/.kube/config: name a file with --kubeconfig")

func (c *clusterFlags) config() (*rest.Config, error) {
	config, err := c.loader().ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errNoKubeconfig
	case err != nil:
		return nil, err
	}
	config.Timeout = clusterTimeout
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// clusterClients are the clients of a cluster's API server.
type clusterClients struct {
	host string // of the API server
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
	return &clusterClients{config.Host, kube, dyn}, nil
}

// fetch reads the machine of --node from the cluster of the kubeconfig, with the GPUs that its pods hold.
func (s *source) fetch(cmd *cobra.Command) (*input, error) {
	flags := clusterFlags{s.kubeconfig, s.context}
	clients, err := flags.clients()
	if err != nil {
		return nil, inputf("--node %s: %w", s.node, err)
	}
	obj, err := clients.topologyOf(cmd.Context(), s.node)
	if err != nil {
		return nil, inputf("--node %s: %w", s.node, err)
	}
	in, err := s.fromObject(obj, "--node "+s.node)
	if err != nil {
		return nil, err
	}
	switch o, err := clients.readNode(cmd.Context(), obj); {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		cmd.PrintErrf("--node %s: GPUs that the node's agent has not reported yet are shown as free: %s\n", s.node, printable(err.Error()))
	case err != nil:
		return nil, inputf("--node %s: %w", s.node, err)
	default:
		if counted := in.hold(clusterview.Of(o, clusterview.Options{Resource: in.resource})); counted > 0 {
			cmd.PrintErrf("--node %s: pods hold %d GPUs by number only; they may be among those shown as free\n", s.node, counted)
		}
	}
	return in, nil
}

// hold sets as used the GPUs that the pods of a one-node view hold, and returns the number of untracked
// ones beyond.
func (in *input) hold(v *clusterview.View) (counted int) {
	in.used = 0
	for _, n := range v.Nodes {
		for i := range n.Pods {
			counted += n.Pods[i].Counted
		}
		for i := range n.GPUs {
			if gpu := &n.GPUs[i]; gpu.State == clusterview.Used || len(gpu.Pods) > 0 {
				held, _ := in.graph.Positions([]string{gpu.UUID})
				in.used |= held
			}
		}
	}
	return counted
}

// topologyOf reads the NodeGPUTopology of a node.
func (c *clusterClients) topologyOf(ctx context.Context, node string) (*v1alpha1.NodeGPUTopology, error) {
	u, err := c.dyn.Resource(v1alpha1.GroupVersionResource).Get(ctx, node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the cluster %s has no NodeGPUTopology of that name; does the exporter run on that node? (%w)", c.host, err)
	case err != nil:
		return nil, fmt.Errorf("cluster %s: %w", c.host, err)
	}
	var obj v1alpha1.NodeGPUTopology
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &obj); err != nil {
		return nil, err
	}
	return &obj, nil
}

// readNode reads the objects that show the users of one node's GPUs.
func (c *clusterClients) readNode(ctx context.Context, obj *v1alpha1.NodeGPUTopology) (*clusterobjects.Objects, error) {
	node, err := c.kube.CoreV1().Nodes().Get(ctx, obj.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get node: %w", err)
	}
	pods, err := c.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", obj.Name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list pods of the node: %w", err)
	}
	o := &clusterobjects.Objects{Now: time.Now(), Nodes: []v1.Node{*node}, Pods: pods.Items, Topologies: []v1alpha1.NodeGPUTopology{*obj}, LeasesKnown: true}
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		lease, err := c.kube.CoordinationV1().Leases(release.Namespace).Get(ctx, prefix+obj.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("get lease: %w", err)
		default:
			o.Leases = append(o.Leases, *lease)
		}
	}
	return o, nil
}
