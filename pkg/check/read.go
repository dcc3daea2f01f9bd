// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
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
	return w, w.readTopologies(ctx, dyn, at)
}

func (w *World) readTopologies(ctx context.Context, dyn dynamic.Interface, at metav1.ListOptions) error {
	return pages(at, func(opts metav1.ListOptions) (metav1.ListInterface, error) {
		l, err := dyn.Resource(v1alpha1.GroupVersionResource).List(ctx, opts)
		switch {
		case apierrors.IsNotFound(err): // the CRD is not installed
			return &metav1.ListMeta{}, nil
		case err != nil:
			return nil, fmt.Errorf("list NodeGPUTopologies: %w", err)
		}
		for i := range l.Items {
			var t v1alpha1.NodeGPUTopology
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, &t); err != nil {
				return nil, fmt.Errorf("read NodeGPUTopology %s: %w", l.Items[i].GetName(), err)
			}
			w.Topologies = append(w.Topologies, t)
		}
		return l, nil
	})
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
