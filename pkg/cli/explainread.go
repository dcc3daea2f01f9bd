// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// readCluster reads the objects for an explanation.
func (c *explaining) readCluster(cmd *cobra.Command) (*explain.World, error) {
	ctx := cmd.Context()
	namespace, err := c.cluster.ownNamespace(c.namespace)
	if err != nil {
		return nil, err
	}
	c.namespace = namespace
	clients, err := c.cluster.clients()
	if err != nil {
		return nil, err
	}
	o, err := clusterobjects.Read(ctx, clients.kube, &clusterobjects.Request{
		Needed: []clusterobjects.Kind{clusterobjects.Pods, clusterobjects.Nodes, clusterobjects.Leases},
		Optional: []clusterobjects.Kind{
			clusterobjects.Topologies, clusterobjects.ClusterTopologies, clusterobjects.PodGroups, clusterobjects.Jobs, clusterobjects.Claims, clusterobjects.Budgets,
			clusterobjects.StorageClasses, clusterobjects.Workloads, clusterobjects.LocalQueues, clusterobjects.ClusterQueues, clusterobjects.ElasticJobs,
		},
		Namespaces: map[clusterobjects.Kind]string{
			clusterobjects.Leases: c.leases, clusterobjects.Jobs: namespace, clusterobjects.Claims: namespace, clusterobjects.LocalQueues: namespace,
			clusterobjects.ElasticJobs: namespace,
		},
		Clock: c.clock,
	})
	if err != nil {
		return nil, inputf("%w", err)
	}
	if what := o.Forbidden(); what != "" {
		cmd.PrintErrln(what)
	}
	var unread error
	if o.Published, unread, err = publishedProfiles(ctx, clients.kube, c.leases); err != nil {
		return nil, err
	} else if unread != nil { // an account that may not read it uses the shipped one
		cmd.PrintErrf("namespace %s: %s; pods are explained by the shipped profile\n", c.leases, printable(unread.Error()))
	}
	return &explain.World{
		Objects: *o, NoDefinition: apierrors.IsNotFound(o.Unread[clusterobjects.Topologies]),
		ClaimsKnown: o.Unread[clusterobjects.Claims] == nil, QueuesKnown: o.Unread[clusterobjects.LocalQueues] == nil,
	}, nil
}

// publishedProfiles reads the profiles published by the scheduler of a namespace; nil if there are none,
// or the account may not read them. unread is the reason if they cannot be understood.
func publishedProfiles(ctx context.Context, kube kubernetes.Interface, namespace string) (p *diagnosis.Profiles, unread, err error) {
	published, err := kube.CoreV1().ConfigMaps(namespace).Get(ctx, diagnosis.ProfilesName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, inputf("get configmap %s/%s: %w", namespace, diagnosis.ProfilesName, err)
	}
	p, unread = diagnosis.ParseProfiles(published.Data)
	return p, unread, nil
}
