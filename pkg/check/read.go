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

// snapshotTries is how often a snapshot is begun anew when it grew too old meanwhile.
const snapshotTries = 3

// Read reads a cluster as it was at one moment: the pods first, and everything else
// at the resource version of that list, which the API server keeps for some minutes.
// So no skew between lists makes a violation or hides one. Where a resource has an
// etcd of its own, versions are not comparable; there its newest state is taken.
// Without the CRD there are no topologies. Schedulers are left to the caller.
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

// pages lists page after page; later ones are of the first one's version.
func pages(opts metav1.ListOptions, list func(metav1.ListOptions) (metav1.ListInterface, error)) error {
	opts.Limit = pageSize
	for {
		l, err := list(opts)
		if err != nil && opts.ResourceVersionMatch != "" && opts.Continue == "" && apierrors.IsTimeout(err) {
			// A version that this resource's etcd has not come to.
			opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
			l, err = list(opts)
		}
		if err != nil {
			return err
		}
		if opts.Continue = l.GetContinue(); opts.Continue == "" {
			return nil
		}
		opts.ResourceVersion, opts.ResourceVersionMatch = "", "" // the token has it
	}
}
