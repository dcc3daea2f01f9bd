// SPDX-License-Identifier: Apache-2.0

package graphclient

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// NewInformer returns an informer of all NodeGPUTopology objects, or of the one
// of node where that is not empty. Objects come without managed fields, which nobody
// reads, and share their lists with those of equal machines. Nothing runs yet.
func NewInformer(config *rest.Config, node string) (cache.SharedIndexInformer, error) {
	client, err := restClient(config)
	if err != nil {
		return nil, err
	}
	only := func(o *metav1.ListOptions) {
		if node != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()
		}
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			only(&o)
			list := &v1alpha1.NodeGPUTopologyList{}
			return list, client.Get().Resource(v1alpha1.Resource).VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			only(&o)
			o.Watch = true
			return client.Get().Resource(v1alpha1.Resource).VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
		},
	}
	informer := cache.NewSharedIndexInformer(lw, &v1alpha1.NodeGPUTopology{}, 0, cache.Indexers{})
	if err := informer.SetTransform(new(machines).transform); err != nil {
		return nil, fmt.Errorf("watching %s: %w", v1alpha1.Resource, err)
	}
	return informer, nil
}

func restClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	c := rest.CopyConfig(config)
	gv := v1alpha1.SchemeGroupVersion
	c.GroupVersion, c.APIPath = &gv, "/apis"
	c.ContentConfig = rest.ContentConfig{
		GroupVersion: &gv, NegotiatedSerializer: serializers{serializer.NewCodecFactory(scheme).WithoutConversion()},
		ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON,
	}
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", gv, err)
	}
	return client, nil
}
