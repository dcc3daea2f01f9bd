// SPDX-License-Identifier: Apache-2.0

package clusterobjects

import (
	"maps"
	"slices"
	"strings"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// Objects holds a cluster's objects at one moment. The reader selects the kinds; others are empty.
type Objects struct {
	Now             time.Time // when they were read
	Nodes           []v1.Node
	Pods            []v1.Pod
	Namespaces      []v1.Namespace
	Topologies      []topologyv1alpha1.NodeGPUTopology
	ClusterTopology *topologyv1alpha1.ClusterTopology // the one that counts; nil: there is none
	Leases          []coordinationv1.Lease            // of exporters, agents and the scheduler
	PodGroups       []schedulingv1alpha1.PodGroup     // of scheduler-plugins
	Budgets         []policyv1.PodDisruptionBudget
	Jobs            []batchv1.Job
	Claims          []v1.PersistentVolumeClaim
	StorageClasses  []storagev1.StorageClass
	Workloads       []kueue.Workload
	LocalQueues     []kueue.LocalQueue
	ClusterQueues   []kueue.ClusterQueue
	ElasticJobs     []ElasticJob
	// Published holds the profiles that the leading scheduler has published; nil if there are none.
	Published *diagnosis.Profiles
	// Schedulers are the states of scheduler processes.
	Schedulers []diagnosis.State
	// LeasesKnown: Leases holds all Leases of one namespace. It is unknown for saved objects.
	LeasesKnown bool
	// Faults describes what could not be read, and the assumption made instead.
	Faults []string
	// Unread holds the kinds that Read was to read and could not, with the API server's error.
	Unread map[Kind]error
}

// ElasticJob holds the fields of an ElasticJob that are read. Its template need not be one of pods; the
// status then reports that.
type ElasticJob struct {
	metav1.ObjectMeta `json:"metadata"`

	Status poolv1alpha1.ElasticJobStatus `json:"status"`
}

// Gone reports whether nothing of nvtopo is in the cluster: nothing is published, none of its programs
// has a Lease, and no node a NodeGPUTopology. It is false where that is not known.
func (o *Objects) Gone() bool {
	unread := o.Unread[Topologies]
	return o.LeasesKnown && (unread == nil || apierrors.IsNotFound(unread)) && o.Published == nil && len(o.Topologies) == 0 &&
		!slices.ContainsFunc(o.Leases, func(l coordinationv1.Lease) bool {
			return l.Name == diagnosis.ShippedLease || strings.HasPrefix(l.Name, nodelease.ExporterPrefix) || strings.HasPrefix(l.Name, nodelease.AgentPrefix)
		})
}

// Forbidden returns a message with the kinds that the API server refuses to read; empty if there are
// none.
func (o *Objects) Forbidden() string {
	var names []string
	for _, k := range slices.Sorted(maps.Keys(o.Unread)) {
		if apierrors.IsForbidden(o.Unread[k]) {
			names = append(names, string(k))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return MayNotBeRead(strings.Join(names, ", "))
}

// MayNotBeRead returns the message that the API server refuses to read some kinds.
func MayNotBeRead(kinds string) string { return kinds + " may not be read, and are taken to be none" }

// Moment returns the time at which the objects were read, as far as they show it. It is the last write of
// a Lease by the API server's clock; without managed fields it is the last renewTime of a Lease. The time
// of a scheduler's state is used if it is later. It is zero if none of these is present.
func (o *Objects) Moment() time.Time {
	var written, renewed time.Time
	for i := range o.Leases {
		l := &o.Leases[i]
		for j := range l.ManagedFields {
			if at := l.ManagedFields[j].Time; at != nil && at.After(written) {
				written = at.Time
			}
		}
		if at := l.Spec.RenewTime; at != nil && at.After(renewed) {
			renewed = at.Time
		}
	}
	t := written
	if t.IsZero() {
		t = renewed
	}
	for i := range o.Schedulers {
		if at := o.Schedulers[i].At; at.After(t) {
			t = at
		}
	}
	return t
}
