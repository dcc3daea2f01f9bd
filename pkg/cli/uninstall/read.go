// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// pageSize bounds the objects of one page.
const pageSize = 500

// Cluster is the access to a cluster.
type Cluster struct {
	discovery discovery.DiscoveryInterface
	metadata  metadata.Interface
	dynamic   dynamic.Interface
}

// New returns the access with the rights of a configuration.
func New(config *rest.Config) (*Cluster, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	m, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Cluster{d, m, dyn}, nil
}

// query is one list of a kind.
type query struct {
	resource   schema.GroupVersionResource
	kind       string
	namespaced bool
	namespace  string
	labels     string // selector
	fields     string // selector
	whole      bool   // with content, not the metadata alone
}

// whole are the kinds of which the plan needs the content, in all namespaces.
var whole = map[schema.GroupResource]query{
	{Group: "apps", Resource: "daemonsets"}:            {},
	{Group: "nvidia.com", Resource: "clusterpolicies"}: {},
	{Group: kueueGroup, Resource: "clusterqueues"}:     {},
	{Group: kueueGroup, Resource: "admissionchecks"}:   {},
	{Resource: "configmaps"}:                           {labels: release.PartOfLabel + "=" + release.PartOf},
	{Group: "apps", Resource: "deployments"}:           {labels: release.PartOfLabel + "=" + release.PartOf},
	{Group: rbacGroup, Resource: "rolebindings"}:       {namespace: release.Namespace},
	{Group: "coordination.k8s.io", Resource: "leases"}: {namespace: kubeNamespace, fields: "metadata.name=kube-scheduler"},
	{Resource: "secrets"}:                              {labels: "owner=helm", fields: "type=" + helmSecret},
	{Resource: "pods"}:                                 {fields: "spec.nodeName="},
}

// everywhere are the other projects' kinds of which any object may have a part of nvtopo's.
var everywhere = []schema.GroupResource{
	{Resource: "pods"},
	{Resource: "nodes"},
	{Group: "batch", Resource: "jobs"},
	{Group: kueueGroup, Resource: "workloads"},
	{Group: kueueGroup, Resource: "workloadpriorityclasses"},
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
}

// queries returns the lists of a kind that the plan needs.
func queries(q query) (out []query) {
	group := schema.GroupResource{Group: q.resource.Group, Resource: q.resource.Resource}
	if w, ok := whole[group]; ok {
		w.resource, w.kind, w.namespaced, w.whole = q.resource, q.kind, q.namespaced, true
		out = append(out, w)
	}
	with := func(namespace, labels string) {
		q := q
		q.namespace, q.labels = namespace, labels
		out = append(out, q)
	}
	if isOurGroup(q.resource.Group) || slices.Contains(everywhere, group) {
		with("", "")
		return out
	}
	with("", release.PartOfLabel+"="+release.PartOf)
	if q.resource.Group == kueueGroup {
		with("", names.LabelManaged)
	}
	if q.namespaced {
		with(release.Namespace, "") // all objects in the project's namespace
	}
	return out
}

// Read lists the objects for a plan: of every kind that the API server serves those with the project's
// label or in its namespace, and more of some.
func (c *Cluster) Read(ctx context.Context) ([]Object, error) {
	lists, err := c.discovery.ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		return nil, fmt.Errorf("discover the kinds: %w", err)
	}
	if failed := (*discovery.ErrGroupDiscoveryFailed)(nil); errors.As(err, &failed) {
		for group := range failed.Groups {
			if needed(group.Group) {
				return nil, fmt.Errorf("discover the kinds: %w", err)
			}
		}
	}
	seen := map[types.UID]int{}
	var out []Object
	for _, q := range kinds(lists) {
		objects, err := c.list(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range objects {
			uid := objects[i].GetUID()
			if _, there := seen[uid]; there {
				continue // with its content, which was listed first
			}
			seen[uid] = len(out)
			out = append(out, objects[i])
		}
	}
	return out, nil
}

// needed reports whether a plan would be wrong without the kinds of a group: it would miss installed
// objects, or others in the namespace.
func needed(group string) bool {
	return isOurGroup(group) || slices.Contains(clusterGroups, group) ||
		slices.Contains([]string{"", "apps", "batch", "coordination.k8s.io", "apiextensions.k8s.io", kueueGroup}, group)
}

// kinds returns the queries of all kinds that can be listed and deleted. Events expire by themselves.
func kinds(lists []*metav1.APIResourceList) (out []query) {
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // the server names none such
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") || r.Kind == "Event" {
				continue
			}
			out = append(out, queries(query{resource: gv.WithResource(r.Name), kind: r.Kind, namespaced: r.Namespaced})...)
		}
	}
	return out
}

// list reads all pages of a list. A kind that was removed meanwhile has no objects.
func (c *Cluster) list(ctx context.Context, q query) (out []Object, err error) {
	opts := metav1.ListOptions{LabelSelector: q.labels, FieldSelector: q.fields, Limit: pageSize}
	for {
		var items []unstructured.Unstructured
		var next string
		if q.whole {
			items, next, err = c.page(ctx, q, opts)
		} else {
			items, next, err = c.metaPage(ctx, q, opts)
		}
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", q.resource.GroupResource(), err)
		}
		for i := range items {
			items[i].SetGroupVersionKind(q.resource.GroupVersion().WithKind(q.kind))
			out = append(out, Object{q.resource, &items[i]})
		}
		if next == "" {
			return out, nil
		}
		opts.Continue = next
	}
}

func (c *Cluster) page(ctx context.Context, q query, opts metav1.ListOptions) ([]unstructured.Unstructured, string, error) {
	list, err := c.dynamic.Resource(q.resource).Namespace(q.namespace).List(ctx, opts)
	if err != nil {
		return nil, "", err // the caller names the kind
	}
	return list.Items, list.GetContinue(), nil
}

func (c *Cluster) metaPage(ctx context.Context, q query, opts metav1.ListOptions) ([]unstructured.Unstructured, string, error) {
	list, err := c.metadata.Resource(q.resource).Namespace(q.namespace).List(ctx, opts)
	if err != nil {
		return nil, "", err // the caller names the kind
	}
	out := make([]unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		if out[i].Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&list.Items[i]); err != nil {
			return nil, "", err
		}
	}
	return out, list.GetContinue(), nil
}
