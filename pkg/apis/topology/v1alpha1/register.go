// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of the project's resources.
const GroupName = "topology.nvtopo.dev"

// LabelGPUCount is the label by which an exporter says how many GPUs its Node has.
const LabelGPUCount = "nvtopo.dev/gpu-count"

// Names of the resources.
const (
	Kind     = "NodeGPUTopology"
	Resource = "nodegputopologies"

	ClusterTopologyKind     = "ClusterTopology"
	ClusterTopologyResource = "clustertopologies"
	// ClusterTopologyName is the name of the one ClusterTopology that counts.
	ClusterTopologyName = "default"
)

var (
	// SchemeGroupVersion is the group and version of this package.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
	// GroupVersionResource names the collection of NodeGPUTopologies for dynamic clients.
	GroupVersionResource = SchemeGroupVersion.WithResource(Resource)
	// ClusterTopologyGVR names that of ClusterTopologies.
	ClusterTopologyGVR = SchemeGroupVersion.WithResource(ClusterTopologyResource)
	// SchemeBuilder collects the registration functions of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme registers the types of this package.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &NodeGPUTopology{}, &NodeGPUTopologyList{}, &ClusterTopology{}, &ClusterTopologyList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
