// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// labelProduct is the label with the model of a node's GPUs, set by NVIDIA's feature discovery.
const labelProduct = "nvidia.com/gpu.product"

// place is a pod's tenant, pool and node.
type place struct {
	tenant   string // empty outside of tenants' namespaces
	pool     *v1alpha1.ComputePool
	joined   func() time.Time                  // start of tenant and pool, parsed at each call; nil: always
	labels   map[string]string                 // of the node
	topology *topologyv1alpha1.NodeGPUTopology // nil where it is not known
}

// since returns the time since which tenant and pool are so; zero if always.
func (p *place) since() time.Time {
	if p.joined == nil {
		return time.Time{}
	}
	return p.joined()
}

// holds returns the records that a bound pod should have, without start and end. Their names depend on
// the pod alone, so that no replay creates a second one.
func holds(pod *v1.Pod, at place, now time.Time) []v1alpha1.UsageRecord {
	if pod.Spec.NodeName == "" || at.tenant == "" || at.pool == nil {
		return nil
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var out []v1alpha1.UsageRecord
	for i, resource := range units.Extended(requests) {
		if !counts(at.pool, resource) {
			continue
		}
		q := requests[v1.ResourceName(resource)]
		out = append(out, v1alpha1.UsageRecord{
			ObjectMeta: metav1.ObjectMeta{
				Name: recordName(pod, i), Namespace: pod.Namespace,
				Labels:      map[string]string{v1alpha1.LabelTenant: at.tenant, v1alpha1.LabelPool: at.pool.Name},
				Annotations: map[string]string{names.AnnotationRecorded: now.UTC().Format(time.RFC3339)},
				Finalizers:  []string{names.FinalizerBilling},
			},
			Spec: v1alpha1.UsageRecordSpec{
				Tenant: at.tenant, Pool: at.pool.Name, Pod: pod.Name, PodUID: pod.UID, Node: pod.Spec.NodeName,
				Namespace: pod.Namespace, Queue: kueue.QueueOf(pod), Owner: ownerOf(pod),
				Resource: resource, Model: modelOf(pod, at, resource),
				Quantity: units.Devices(resource, q.Value(), replicasOn(at.labels, at.pool, resource)),
			},
		})
	}
	return out
}

// recordName returns the pod's UID, followed by the resource's number if it is not the first one.
func recordName(pod *v1.Pod, i int) string {
	if i == 0 {
		return string(pod.UID)
	}
	return string(pod.UID) + "-" + strconv.Itoa(i)
}

// ownerOf returns the owner of a pod: its ElasticJob or RemoteGPUSession, else its controller.
func ownerOf(pod *v1.Pod) string {
	if name := pod.Labels[names.LabelElasticJob]; name != "" {
		return names.Owner(v1alpha1.ElasticJobKind, name)
	}
	if name := pod.Labels[names.LabelSession]; name != "" {
		return names.Owner(v1alpha1.RemoteGPUSessionKind, name)
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return names.Owner(owner.Kind, owner.Name)
	}
	return ""
}

// modelOf returns the model of the devices that a pod has of a resource, according to the node's
// NodeGPUTopology, else to the node's label. It is empty if they are of several models.
func modelOf(pod *v1.Pod, at place, resource string) string {
	if at.topology != nil {
		if models := modelsIn(pod, at.topology, resource); len(models) == 1 {
			return models[0]
		} else if len(models) > 1 {
			return ""
		}
	}
	return names.Model(at.labels[labelProduct])
}

func modelsIn(pod *v1.Pod, t *topologyv1alpha1.NodeGPUTopology, resource string) []string {
	var own []string // nil without a recorded allocation
	if a, err := allocation.Of(pod, pod.Spec.NodeName); err == nil {
		own = a.GPUs(resource)
	}
	var models []string
	for i := range t.Spec.GPUs {
		g := &t.Spec.GPUs[i]
		named := cmp.Or(g.Resource, topologyv1alpha1.DefaultResource)
		if (named != resource && named != units.DeviceOf(resource)) || len(own) > 0 && !slices.Contains(own, g.ID) {
			continue
		}
		if m := names.Model(g.Model); m != "" && !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	return models
}
