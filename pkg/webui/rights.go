// SPDX-License-Identifier: Apache-2.0

package webui

import (
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// Who sees a document must have the right to list what it is made of, in all namespaces: the web
// view shows nobody what kubectl would not. Of Leases nothing is shown but whether a graph is stale and
// whether a scheduler leads, so nobody needs a right to them.

func list(group, resource string) Right { return Right{Verb: "list", Group: group, Resource: resource} }

// seesCluster is needed for the fabric and the nodes.
func seesCluster() []Right {
	ours := v1alpha1.SchemeGroupVersion.Group
	return []Right{list("", "nodes"), list(ours, v1alpha1.Resource), list(ours, v1alpha1.ClusterTopologyResource)}
}

// seesPods is needed for what names pods, their gangs, tenants and queues, or says why they wait:
// an explanation may speak of any of these.
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

// seesMoney is needed for what tenants used and owe.
func seesMoney() []Right {
	var out []Right
	for _, resource := range []string{poolv1alpha1.UsageRecordResource, poolv1alpha1.UsageBatchResource, poolv1alpha1.TenantAccountResource, poolv1alpha1.PriceBookResource, poolv1alpha1.InvoiceResource} {
		out = append(out, list(poolv1alpha1.GroupName, resource))
	}
	return out
}

// seesHours is needed for what tenants used, and for which tenants there are.
func seesHours() []Right { return append(append(seesMoney(), seesPools()...), list("", "namespaces")) }
