// SPDX-License-Identifier: Apache-2.0

package config

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	schedulerinternal "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
)

// init registers the arguments in three places, all needed: kube-scheduler builds
// the scheme that converts arguments from the two builders on first use, and
// decodes with a scheme that its own init has filled already.
func init() {
	schedulerv1.SchemeBuilder.Register(addExternal)
	schedulerinternal.SchemeBuilder.Register(addInternal)
	utilruntime.Must(addExternal(schedulerscheme.Scheme))
	utilruntime.Must(addInternal(schedulerscheme.Scheme))
}

func addExternal(s *runtime.Scheme) error { return addTo(s, schedulerv1.SchemeGroupVersion) }

func addInternal(s *runtime.Scheme) error { return addTo(s, schedulerinternal.SchemeGroupVersion) }

func addTo(s *runtime.Scheme, gv schema.GroupVersion) error {
	s.AddKnownTypes(gv, &TopologyAwareArgs{}, &NUMAAffinityArgs{}, &GangPlacementArgs{})
	s.AddTypeDefaultingFunc(&TopologyAwareArgs{}, func(obj any) {
		if args, ok := obj.(*TopologyAwareArgs); ok {
			SetDefaults_TopologyAwareArgs(args)
		}
	})
	s.AddTypeDefaultingFunc(&NUMAAffinityArgs{}, func(obj any) {
		if args, ok := obj.(*NUMAAffinityArgs); ok {
			SetDefaults_NUMAAffinityArgs(args)
		}
	})
	s.AddTypeDefaultingFunc(&GangPlacementArgs{}, func(obj any) {
		if args, ok := obj.(*GangPlacementArgs); ok {
			SetDefaults_GangPlacementArgs(args)
		}
	})
	return nil
}
