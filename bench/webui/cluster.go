// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

// cluster has nodes of 8 GPUs in racks of 16, each with 0 to 6 pods of one GPU.
func cluster(nodes int) (*apiServer, error) {
	r := rand.New(rand.NewPCG(1, 2))
	c := viewtest.New()
	c.Now = time.Now()
	for i := range nodes {
		name := "n" + strconv.Itoa(i)
		if err := c.AddNode(name, "dgx-h100", "topology.kubernetes.io/rack", "r"+strconv.Itoa(i/16)); err != nil {
			return nil, fmt.Errorf("make the cluster: %w", err)
		}
		c.Nodes[i].ResourceVersion, c.Topologies[i].ResourceVersion, c.Leases[i].ResourceVersion = "1", "1", "1"
		c.Topologies[i].APIVersion, c.Topologies[i].Kind = v1alpha1.SchemeGroupVersion.String(), v1alpha1.Kind
		c.Leases[i].Spec.LeaseDurationSeconds = new(int32(1 << 20)) // nothing becomes stale meanwhile
		at := r.Perm(8)
		for j := range r.IntN(7) {
			c.AddPod(name+"-"+strconv.Itoa(j), name, 1, at[j]).ResourceVersion = "1"
		}
	}
	first := metav1.ListMeta{ResourceVersion: "1"}
	lists := map[string]runtime.Object{
		"/api/v1/nodes":                  &v1.NodeList{ListMeta: first, Items: c.Nodes},
		"/api/v1/namespaces":             &v1.NamespaceList{ListMeta: first},
		"/api/v1/persistentvolumeclaims": &v1.PersistentVolumeClaimList{ListMeta: first},
		"/apis/batch/v1/jobs":            &batchv1.JobList{ListMeta: first},
		"/apis/coordination.k8s.io/v1/namespaces/nvtopo-system/leases": &coordinationv1.LeaseList{ListMeta: first, Items: c.Leases},
		"/apis/policy/v1/poddisruptionbudgets":                         &policyv1.PodDisruptionBudgetList{ListMeta: first},
		"/apis/storage.k8s.io/v1/storageclasses":                       &storagev1.StorageClassList{ListMeta: first},
		"/apis/" + v1alpha1.SchemeGroupVersion.String() + "/" + v1alpha1.Resource: &v1alpha1.NodeGPUTopologyList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind + "List"}, ListMeta: first, Items: c.Topologies,
		},
	}
	return newAPIServer(lists, c.Pods), nil
}

// churn makes changes at a rate until ctx ends: pods fail and run again, one after the other.
func (s *apiServer) churn(ctx context.Context, perSecond int) {
	if perSecond == 0 {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.change(n%len(s.pods), func(p *v1.Pod) {
				if p.Status.Phase = v1.PodFailed; n/len(s.pods)%2 == 1 {
					p.Status.Phase = v1.PodRunning
				}
			})
		}
	}
}
