// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/explain"
)

// explainPart is a kind of object that an explanation needs.
type explainPart struct {
	resource  schema.GroupVersionResource
	namespace string // empty: of all
	// needed: without it nothing can be said. What else may not be read, or is not installed, is
	// taken to be none.
	needed bool
}

// readCluster reads what an explanation needs.
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
	claims := v1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	queues := kueue.SchemeGroupVersion.WithResource("localqueues")
	w := &explain.World{}
	for _, p := range []explainPart{
		{v1.SchemeGroupVersion.WithResource("pods"), "", true},
		{v1.SchemeGroupVersion.WithResource("nodes"), "", true},
		{coordinationv1.SchemeGroupVersion.WithResource("leases"), c.leases, true},
		{v1alpha1.GroupVersionResource, "", false},
		{v1alpha1.ClusterTopologyGVR, "", false},
		{schedulingv1alpha1.SchemeGroupVersion.WithResource("podgroups"), "", false},
		{batchv1.SchemeGroupVersion.WithResource("jobs"), namespace, false},
		{claims, namespace, false},
		{policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), "", false},
		{storagev1.SchemeGroupVersion.WithResource("storageclasses"), "", false},
		{kueue.SchemeGroupVersion.WithResource("workloads"), "", false},
		{queues, namespace, false},
		{kueue.SchemeGroupVersion.WithResource("clusterqueues"), "", false},
	} {
		err := p.read(ctx, clients.dyn, w)
		switch {
		case err == nil:
			w.ClaimsKnown = w.ClaimsKnown || p.resource == claims
			w.QueuesKnown = w.QueuesKnown || p.resource == queues
		case apierrors.IsNotFound(err) && p.resource == v1alpha1.GroupVersionResource:
			w.NoDefinition = true
		case !p.needed && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
		default:
			return nil, inputf("list %s: %w", p.resource.Resource, err)
		}
	}
	if err := clients.readProfiles(cmd, c.leases, w); err != nil {
		return nil, err
	}
	w.Now = c.clock.Now()
	return w, nil
}

// readProfiles adds what the scheduler of a namespace has published of its profiles; who may not read it
// goes by the shipped one.
func (c *clusterClients) readProfiles(cmd *cobra.Command, namespace string, w *explain.World) error {
	var unread, err error
	if w.Published, unread, err = publishedProfiles(cmd.Context(), c.kube, namespace); unread != nil {
		cmd.PrintErrf("namespace %s: %s; pods are explained by the shipped profile\n", namespace, printable(unread.Error()))
	}
	return err
}

// publishedProfiles reads what the scheduler of a namespace has published; nil if it has published nothing, or the
// account may not read it. unread says why what is there cannot be understood.
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

// read adds all objects of a kind to the World, page by page.
func (p explainPart) read(ctx context.Context, dyn dynamic.Interface, w *explain.World) error {
	const page = 500
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := dyn.Resource(p.resource).Namespace(p.namespace).List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			data, err := list.Items[i].MarshalJSON()
			if err == nil {
				err = w.AddObject(data)
			}
			if err != nil {
				return err
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}
