// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"

	"github.com/nvtopo/nvtopo/internal/rights"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	poolControllerAccount = "nvtopo-pool-controller"
	kueueGroup            = "kueue.x-k8s.io"
)

// poolControllerRights are what the pool controller needs, beside reviews for its metrics. The roles in
// manifests/pools have to say the same, and no more. That each is needed is seen in test/pools.
func poolControllerRights() []rights.Rule {
	list := func(s ...string) []string { return s }
	const pools, topology, leases = poolv1alpha1.GroupName, topologyv1alpha1.GroupName, "coordination.k8s.io"
	read := list("get", "list", "watch")
	own := list("get", "list", "watch", "create", "patch", "delete")
	return []rights.Rule{
		rights.Everywhere(pools, list("computepools", "elasticjobs", "pricebooks", "tenantaccounts", "remotegpusessions"), read),
		rights.Everywhere(pools, list("tenantaccounts"), list("create", "patch")),
		rights.Everywhere(pools, list("computepools"), list("patch")),
		rights.Everywhere(pools, list("computepools/status", "elasticjobs/status", "tenantaccounts/status", "remotegpusessions/status"), list("patch")),
		rights.Everywhere(pools, list("computepools/finalizers", "elasticjobs/finalizers", "remotegpusessions/finalizers"), list("update")),
		rights.Everywhere(pools, list("usagerecords", "usagebatches", "invoices"), own),
		rights.Everywhere(pools, list("usagerecords/status", "invoices/status"), list("patch")),
		rights.Everywhere(pools, list("quotas"), list("write", "protect", "admit")),
		rights.Everywhere(pools, list("accounts"), list("write")),
		rights.Everywhere(kueueGroup, list("cohorts", "clusterqueues", "localqueues", "resourceflavors"), own),
		rights.Everywhere(kueueGroup, list("workloadpriorityclasses"), list("get", "list", "watch", "create")),
		rights.Everywhere(kueueGroup, list("admissionchecks"), list("get", "list", "watch", "create", "patch")),
		rights.Everywhere(kueueGroup, list("workloads"), list("get", "list", "watch", "patch")),
		rights.Everywhere(kueueGroup, list("workloads/status", "admissionchecks/status"), list("patch")),
		rights.Everywhere("batch", list("jobs"), own),
		rights.Everywhere("batch", list("jobs/finalizers"), list("update")),
		rights.Everywhere("", list("services"), own),
		rights.Everywhere("", list("pods", "nodes"), list("get", "list", "watch", "patch")),
		rights.Everywhere("", list("pods/eviction", "secrets"), list("create")),
		rights.Everywhere("", list("namespaces"), read),
		rights.Everywhere("networking.k8s.io", list("networkpolicies"), list("get", "create", "patch")),
		rights.Everywhere(topology, list("nodegputopologies", "clustertopologies"), read),
		rights.Everywhere(topology, list("nodegputopologies"), list("write-any")),
		rights.Everywhere("scheduling.k8s.io", list("priorityclasses"), read),
		rights.Everywhere("", list("events"), list("create", "patch")),
		inProject(leases, list("leases"), list("get", "list", "watch", "create")),
		inProject(leases, list("leases"), list("update", "patch"), "nvtopo-pool-controller", "nvtopo-pool-metering"),
	}
}

// ofPools are rights that discovery does not list: on Kueue's kinds, which are not installed here, on
// finalizers, and verbs that policies ask for.
func ofPools() (out []rights.Right) {
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
		for _, kind := range []string{
			"cohorts", "clusterqueues", "localqueues", "resourceflavors", "workloadpriorityclasses", "admissionchecks", "workloads", "topologies",
			"multikueueclusters", "multikueueconfigs", "provisioningrequestconfigs",
			"cohorts/status", "clusterqueues/status", "localqueues/status", "admissionchecks/status", "workloads/status", "workloads/finalizers",
		} {
			resource, sub, _ := strings.Cut(kind, "/")
			out = append(out, rights.Right{Verb: verb, Group: kueueGroup, Resource: resource, Subresource: sub})
		}
	}
	for _, kind := range []string{"computepools", "elasticjobs", "remotegpusessions", "usagerecords", "usagebatches", "invoices", "tenantaccounts", "pricebooks"} {
		out = append(out, rights.Right{Verb: "update", Group: poolv1alpha1.GroupName, Resource: kind, Subresource: "finalizers"})
	}
	out = append(out, rights.Right{Verb: "update", Group: "batch", Resource: "jobs", Subresource: "finalizers"})
	for _, verb := range []string{"write", "protect", "admit", "assign", "bypass"} {
		for _, name := range []string{"quotas", "accounts", "tenants", "computepools"} {
			out = append(out, rights.Right{Verb: verb, Group: poolv1alpha1.GroupName, Resource: name})
		}
	}
	return out
}
