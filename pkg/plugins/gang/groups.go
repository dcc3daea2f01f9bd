// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"fmt"
	"maps"
	"slices"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"
	"sigs.k8s.io/scheduler-plugins/pkg/generated/informers/externalversions"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// groupResource is the resource of PodGroups.
const groupResource = "podgroups"

// groupsServed reports whether the API server has PodGroups.
func groupsServed(client discovery.DiscoveryInterface) (bool, error) {
	list, err := client.ServerResourcesForGroupVersion(schedulingv1alpha1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking the API server for %s: %w", schedulingv1alpha1.SchemeGroupVersion, err)
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == groupResource {
			return true, nil
		}
	}
	return false, nil
}

// followGroups passes PodGroups to the gangs until ctx ends.
func (p *Process) followGroups(ctx context.Context, config *rest.Config) error {
	client, err := groupsClient(config)
	if err != nil {
		return err
	}
	factory := externalversions.NewSharedInformerFactory(client, 0)
	informer := factory.Scheduling().V1alpha1().PodGroups().Informer()
	set := func(obj any) {
		if group, ok := obj.(*schedulingv1alpha1.PodGroup); ok {
			p.gangs.SetGroup(group)
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if group, ok := obj.(*schedulingv1alpha1.PodGroup); ok {
				p.gangs.DeleteGroup(group)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching PodGroups: %w", err)
	}
	factory.Start(ctx.Done())
	return nil
}

// groupsClient returns a client for PodGroups, which the API server serves as JSON only.
func groupsClient(config *rest.Config) (versioned.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for PodGroups: %w", err)
	}
	return client, nil
}

// nodeChanged reports whether a node changed in a way that may let other pods onto it.
func nodeChanged(old, node *v1.Node) bool {
	return old.Spec.Unschedulable != node.Spec.Unschedulable || !slices.Equal(old.Spec.Taints, node.Spec.Taints) ||
		!maps.Equal(old.Labels, node.Labels) || !equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable)
}
