// SPDX-License-Identifier: Apache-2.0

package graphclient

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// NewTopologyInformer returns an informer of the one ClusterTopology that counts. As long as
// the API server does not know the kind, or RBAC does not let this process read it, there is
// none: the informer is in sync and empty, says so once, and finds it when that changes. What
// has been read once stays until it is deleted: an API server that starts may refuse for a
// moment what it knows. Nothing runs yet.
func NewTopologyInformer(config *rest.Config) (cache.SharedIndexInformer, error) {
	client, err := restClient(config)
	if err != nil {
		return nil, err
	}
	only := func(o *metav1.ListOptions) *metav1.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.ClusterTopologyName).String()
		return o
	}
	request := func(o metav1.ListOptions) *rest.Request {
		return client.Get().Resource(v1alpha1.ClusterTopologyResource).VersionedParams(only(&o), metav1.ParameterCodec)
	}
	var known, said atomic.Bool
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.ClusterTopologyList{}
			switch err := request(o).Do(ctx).Into(list); {
			case err == nil:
				known.Store(true)
			case known.Load() || !absent(err):
				return nil, fmt.Errorf("listing %s: %w", v1alpha1.ClusterTopologyResource, err)
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := request(o).Watch(ctx)
			if err == nil {
				known.Store(true)
			}
			return w, err
		},
	}
	informer := cache.NewSharedIndexInformer(lw, &v1alpha1.ClusterTopology{}, 0, cache.Indexers{})
	err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		switch {
		case !absent(err):
			said.Store(false)
			cache.DefaultWatchErrorHandler(ctx, r, err)
		case said.CompareAndSwap(false, true):
			klog.FromContext(ctx).Info("ClusterTopology cannot be read; what was read before counts, else the labels under topology.kubernetes.io; it is looked for again", "err", err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", v1alpha1.ClusterTopologyResource, err)
	}
	return informer, nil
}

// absent reports whether an answer means that there is no such kind for this process.
func absent(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }
