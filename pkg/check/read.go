// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// pageSize bounds one answer of the API server.
const pageSize = 500

// snapshotTries is how often a snapshot is tried when it becomes too old while it is
// read.
const snapshotTries = 3

// Read reads a cluster as it was at one moment: first the pods, then everything else at
// the resource version of that list. The API server keeps such versions for some
// minutes. So a difference in time between lists cannot make a violation or hide one.
// If a resource has its own etcd, versions are not comparable, and its newest state is
// read. Without the CRD there are no topologies. The caller reads the schedulers.
func Read(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, namespace string) (*World, error) {
	for try := 1; ; try++ {
		w, err := readAt(ctx, kube, dyn, namespace)
		if err == nil || try == snapshotTries || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return w, err
		}
	}
}

func readAt(ctx context.Context, kube kubernetes.Interface, dyn dynamic.Interface, namespace string) (*World, error) {
	w := &World{Now: clock.RealClock{}.Now()}
	var version string
	err := pages(metav1.ListOptions{}, func(opts metav1.ListOptions) (metav1.ListInterface, error) {
		l, err := kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		w.Pods, version = append(w.Pods, l.Items...), l.ResourceVersion
		return l, nil
	})
	if err != nil {
		return nil, err
	}
	at := metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	err = pages(at, func(opts metav1.ListOptions) (metav1.ListInterface, error) {
		l, err := kube.CoreV1().Nodes().List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		w.Nodes = append(w.Nodes, l.Items...)
		return l, nil
	})
	if err != nil {
		return nil, err
	}
	err = pages(at, func(opts metav1.ListOptions) (metav1.ListInterface, error) {
		l, err := kube.CoordinationV1().Leases(namespace).List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list Leases in %s: %w", namespace, err)
		}
		w.Leases = append(w.Leases, l.Items...)
		return l, nil
	})
	if err != nil {
		return nil, err
	}
	if err := w.readTopologies(ctx, dyn, at); err != nil {
		return w, err
	}
	return w, w.readGangs(ctx, dyn, at)
}

// readGangs reads what gangs are judged by, if there are any.
func (w *World) readGangs(ctx context.Context, dyn dynamic.Interface, at metav1.ListOptions) error {
	var gangs, groups bool
	for i := range w.Pods {
		key, ok := gangrequest.KeyOf(&w.Pods[i])
		gangs = gangs || ok
		groups = groups || key.Source == gangrequest.SourcePodGroup
	}
	if groups {
		resource := schedulingv1alpha1.SchemeGroupVersion.WithResource("podgroups")
		var err error
		if w.PodGroups, err = objects[schedulingv1alpha1.PodGroup](ctx, dyn, resource, at); err != nil {
			return err
		}
	}
	if !gangs {
		return nil
	}
	all, err := objects[v1alpha1.ClusterTopology](ctx, dyn, v1alpha1.ClusterTopologyGVR, at)
	for i := range all {
		if all[i].Name == v1alpha1.ClusterTopologyName {
			w.ClusterTopology = &all[i]
		}
	}
	return err
}

func (w *World) readTopologies(ctx context.Context, dyn dynamic.Interface, at metav1.ListOptions) (err error) {
	w.Topologies, err = objects[v1alpha1.NodeGPUTopology](ctx, dyn, v1alpha1.GroupVersionResource, at)
	return err
}

// objects lists the objects of a custom resource; none if it is not installed.
func objects[T any](ctx context.Context, dyn dynamic.Interface, resource schema.GroupVersionResource, at metav1.ListOptions) (all []T, err error) {
	err = pages(at, func(opts metav1.ListOptions) (metav1.ListInterface, error) {
		l, err := dyn.Resource(resource).List(ctx, opts)
		switch {
		case apierrors.IsNotFound(err): // the CRD is not installed
			return &metav1.ListMeta{}, nil
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		for i := range l.Items {
			var t T
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, &t); err != nil {
				return nil, fmt.Errorf("read %s of %s: %w", l.Items[i].GetName(), resource.Resource, err)
			}
			all = append(all, t)
		}
		return l, nil
	})
	return all, err
}

// pages lists page after page. Later pages have the version of the first one.
func pages(opts metav1.ListOptions, list func(metav1.ListOptions) (metav1.ListInterface, error)) error {
	opts.Limit = pageSize
	for {
		l, err := list(opts)
		if err != nil && opts.ResourceVersionMatch != "" && opts.Continue == "" && apierrors.IsTimeout(err) {
			// This resource's etcd has not reached the version.
			opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
			l, err = list(opts)
		}
		if err != nil {
			return err
		}
		if opts.Continue = l.GetContinue(); opts.Continue == "" {
			return nil
		}
		opts.ResourceVersion, opts.ResourceVersionMatch = "", "" // the token contains the version
	}
}
