// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/check"
	"github.com/nvtopo/nvtopo/pkg/clusterview"
	"github.com/nvtopo/nvtopo/pkg/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/release"
)

// budgetPage bounds one answer of the API server.
const budgetPage = 500

// clusterSource is where the commands that show a cluster read it: of the kubeconfig, or saved.
type clusterSource struct {
	cluster  clusterFlags
	from     []string
	resource string
	minLink  string // of what is counted; empty: any
	clock    clock.PassiveClock
}

// minLinkUsage is what --min-link means to the commands that count what is free.
const minLinkUsage = "count only nodes of which some two GPUs have this link or a better one, " +
	"and on these only sets of which any two have it, as the annotation nvtopo.dev/min-link demands: NVLINK, NV4, PIX, …"

// bindMinLink adds the flag that leaves out lesser links.
func (c *clusterSource) bindMinLink(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.minLink, "min-link", "", minLinkUsage)
}

func (c *clusterSource) bind(cmd *cobra.Command) {
	c.cluster.bind(cmd)
	c.clock = clock.RealClock{}
	f := cmd.Flags()
	f.StringArrayVar(&c.from, "from", nil, `file or folder with the cluster's objects, instead of a cluster; "-" is standard input; may be repeated`)
	f.StringVar(&c.resource, "resource", v1alpha1.DefaultResource, "extended resource the GPUs count under")
}

// saved is in the help of these commands.
const saved = `The cluster is that of the kubeconfig, or with --from the output of
  kubectl get nodes,pods,leases,nodegputopologies,clustertopologies,poddisruptionbudgets \
    -A -o yaml --show-managed-fields`

// reader returns a function that reads the cluster as it is, or an error if the flags are wrong.
func (c *clusterSource) reader(cmd *cobra.Command) (func(ctx context.Context) (*clusterview.View, error), error) {
	var atLeast nvtopo.Class
	if c.minLink != "" {
		var err error
		if atLeast, err = nvtopo.ParseClass(c.minLink); err != nil {
			return nil, usagef("--min-link: %w", err)
		}
	}
	read, err := c.objects(cmd)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*clusterview.View, error) {
		o, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return clusterview.Of(o, clusterview.Options{Resource: c.resource, MinLink: atLeast}), nil
	}, nil
}

// objects is reader before a view is made of what was read.
func (c *clusterSource) objects(cmd *cobra.Command) (func(ctx context.Context) (*clusterview.Objects, error), error) {
	if len(c.from) > 0 {
		if c.cluster.kubeconfig != "" || c.cluster.context != "" {
			return nil, usagef("--from reads files: --kubeconfig and --context cannot be used with it")
		}
		w, err := readWorld(cmd, c.from, c.clock)
		if err != nil {
			return nil, err
		}
		return func(context.Context) (*clusterview.Objects, error) { return objectsOf(w), nil }, nil
	}
	clients, err := c.cluster.clients()
	if err != nil {
		return nil, err
	}
	return clients.readObjects, nil
}

func objectsOf(w *check.World) *clusterview.Objects {
	return &clusterview.Objects{
		Now: w.Now, Nodes: w.Nodes, Pods: w.Pods, Topologies: w.Topologies, Leases: w.Leases,
		Budgets: w.Budgets, ClusterTopology: w.ClusterTopology, Published: w.Published,
	}
}

// readObjects reads everything that a view is made of.
func (c *clusterClients) readObjects(ctx context.Context) (*clusterview.Objects, error) {
	w, err := check.Read(ctx, c.kube, c.dyn, release.Namespace)
	if err != nil {
		return nil, inputf("%w", err)
	}
	if w.ClusterTopology == nil { // it is read with gangs only
		if w.ClusterTopology, err = fetchClusterTopology(ctx, c.dyn); err != nil {
			return nil, err
		}
	}
	if w.Budgets, err = c.readBudgets(ctx); err != nil {
		return nil, inputf("%w", err)
	}
	var unread error
	if w.Published, unread, err = publishedProfiles(ctx, c.kube, release.Namespace); err != nil {
		return nil, err
	}
	o := objectsOf(w)
	o.LeasesKnown = true
	if unread != nil {
		o.Unread = append(o.Unread, fmt.Sprintf("namespace %s: %v; the scheduler's Lease is taken to be %s", release.Namespace, unread, diagnosis.ShippedLease))
	}
	return o, nil
}

func (c *clusterClients) readBudgets(ctx context.Context) (all []policyv1.PodDisruptionBudget, err error) {
	for opts := (metav1.ListOptions{Limit: budgetPage}); ; {
		l, err := c.kube.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list poddisruptionbudgets: %w", err)
		}
		all = append(all, l.Items...)
		if opts.Continue = l.Continue; opts.Continue == "" {
			return all, nil
		}
	}
}
