// SPDX-License-Identifier: Apache-2.0

package webui

import (
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// A caller that sees a document must have the right to list its source objects, in all namespaces: the
// web view shows no caller more than kubectl would. Leases need no right: only whether a graph is stale
// and whether a scheduler leads is shown of them.

func list(group, resource string) Right { return Right{Verb: "list", Group: group, Resource: resource} }

// seesCluster returns the rights for the fabric and the nodes.
func seesCluster() []Right {
	ours := v1alpha1.SchemeGroupVersion.Group
	return []Right{list("", "nodes"), list(ours, v1alpha1.Resource), list(ours, v1alpha1.ClusterTopologyResource)}
}

// seesPods returns the rights for documents that name pods, their gangs, tenants and queues, or explain
// why they wait: an explanation may mention any of these.
func seesPods() []Right {
	return append(seesCluster(),
		list("", "pods"), list("", "namespaces"), list("", "persistentvolumeclaims"), list("batch", "jobs"), list("policy", "poddisruptionbudgets"),
		list("storage.k8s.io", "storageclasses"), list("scheduling.x-k8s.io", "podgroups"),
		list(kueue.GroupName, "workloads"), list(kueue.GroupName, "localqueues"), list(kueue.GroupName, "clusterqueues"),
	)
}

func seesEvents() []Right { return append(seesPods(), list("", "events")) }

func seesPools() []Right {
	return []Right{list(poolv1alpha1.GroupName, poolv1alpha1.ComputePoolResource)}
}

// seesMoney returns the rights for the usage and bills of tenants.
func seesMoney() []Right {
	var out []Right
	for _, resource := range []string{poolv1alpha1.UsageRecordResource, poolv1alpha1.UsageBatchResource, poolv1alpha1.TenantAccountResource, poolv1alpha1.PriceBookResource, poolv1alpha1.InvoiceResource} {
		out = append(out, list(poolv1alpha1.GroupName, resource))
	}
	return out
}

// seesHours returns the rights for the usage of tenants, and for the list of tenants.
func seesHours() []Right { return append(append(seesMoney(), seesPools()...), list("", "namespaces")) }
