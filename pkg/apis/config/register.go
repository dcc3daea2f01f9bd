// SPDX-License-Identifier: Apache-2.0

package config

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	schedconfigv1 "k8s.io/kube-scheduler/config/v1"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
)

// The scheduler decodes args strictly, and defaults them, only if their kinds
// are in its scheme before it is first used: hence an init. The builders feed
// the scheme that converts args; the scheduler's own Scheme was filled by its
// init already.
func init() {
	schedconfigv1.SchemeBuilder.Register(addTo(schedconfigv1.SchemeGroupVersion))
	schedconfig.SchemeBuilder.Register(addTo(schedconfig.SchemeGroupVersion))
	for _, gv := range []schema.GroupVersion{schedconfigv1.SchemeGroupVersion, schedconfig.SchemeGroupVersion} {
		utilruntime.Must(addTo(gv)(scheme.Scheme))
	}
}

// addTo registers the one Go type of each kind under a version.
func addTo(gv schema.GroupVersion) func(*runtime.Scheme) error {
	return func(s *runtime.Scheme) error {
		s.AddKnownTypes(gv, &TopologyAwareArgs{}, &NUMAAffinityArgs{})
		s.AddTypeDefaultingFunc(&TopologyAwareArgs{}, func(o any) { SetDefaults_TopologyAwareArgs(o.(*TopologyAwareArgs)) })
		s.AddTypeDefaultingFunc(&NUMAAffinityArgs{}, func(o any) { SetDefaults_NUMAAffinityArgs(o.(*NUMAAffinityArgs)) })
		return nil
	}
}
