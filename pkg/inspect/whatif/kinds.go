// SPDX-License-Identifier: Apache-2.0

package whatif

import "slices"

// Kind is a kind of objects that the scheduler reads.
type Kind struct {
	APIVersion, Kind, Resource string
	Namespaced                 bool
}

// PodKind, GroupKind, LeaseKind and PriorityClassKind are kinds that the code knows by name.
var (
	PodKind           = &Kind{"v1", "Pod", "pods", true}
	GroupKind         = &Kind{"scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups", true}
	LeaseKind         = &Kind{"coordination.k8s.io/v1", "Lease", "leases", true}
	PriorityClassKind = &Kind{"scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false}
)

// kinds are all that a snapshot may have: what kube-scheduler's informers and ours watch, and what
// admission reads of pods.
var kinds = []*Kind{
	PodKind, GroupKind, LeaseKind, PriorityClassKind,
	{"v1", "Node", "nodes", false},
	{"v1", "Namespace", "namespaces", false},
	{"v1", "PersistentVolumeClaim", "persistentvolumeclaims", true},
	{"v1", "PersistentVolume", "persistentvolumes", false},
	{"v1", "Service", "services", true},
	{"v1", "ReplicationController", "replicationcontrollers", true},
	{"apps/v1", "ReplicaSet", "replicasets", true},
	{"apps/v1", "StatefulSet", "statefulsets", true},
	{"policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true},
	{"storage.k8s.io/v1", "StorageClass", "storageclasses", false},
	{"storage.k8s.io/v1", "CSINode", "csinodes", false},
	{"storage.k8s.io/v1", "CSIDriver", "csidrivers", false},
	{"storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities", true},
	{"storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", false},
	{"resource.k8s.io/v1", "ResourceClaim", "resourceclaims", true},
	{"resource.k8s.io/v1", "ResourceSlice", "resourceslices", false},
	{"resource.k8s.io/v1", "DeviceClass", "deviceclasses", false},
	{"topology.nvtopo.dev/v1alpha1", "NodeGPUTopology", "nodegputopologies", false},
	{"topology.nvtopo.dev/v1alpha1", "ClusterTopology", "clustertopologies", false},
}

// Kinds returns all kinds that a snapshot may have.
func Kinds() []*Kind { return slices.Clone(kinds) }

// KindOf finds a kind by its names in an object; nil if a snapshot cannot have it.
func KindOf(apiVersion, kind string) *Kind {
	i := slices.IndexFunc(kinds, func(k *Kind) bool { return k.APIVersion == apiVersion && k.Kind == kind })
	if i < 0 {
		return nil
	}
	return kinds[i]
}
