// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// Read reads a cluster as it was at one moment: so a difference in time between lists cannot make a
// violation or hide one. namespace is that of the Leases. The caller reads the schedulers, and what
// they have published.
func Read(ctx context.Context, kube kubernetes.Interface, namespace string) (*World, error) {
	o, err := clusterobjects.Read(ctx, kube, &clusterobjects.Request{
		Needed: []clusterobjects.Kind{clusterobjects.Pods, clusterobjects.Nodes, clusterobjects.Leases, clusterobjects.Topologies},
		More:   ofGangs, Namespaces: map[clusterobjects.Kind]string{clusterobjects.Leases: namespace}, Clock: clock.RealClock{},
	})
	if err != nil {
		return nil, err
	}
	return &World{Objects: *o}, nil
}

// ofGangs are the kinds that gangs are judged by, if there are any.
func ofGangs(o *clusterobjects.Objects) (more []clusterobjects.Kind) {
	var gangs, groups bool
	for i := range o.Pods {
		key, ok := gangrequest.KeyOf(&o.Pods[i])
		gangs = gangs || ok
		groups = groups || key.Source == gangrequest.SourcePodGroup
	}
	if groups {
		more = append(more, clusterobjects.PodGroups)
	}
	if gangs {
		more = append(more, clusterobjects.ClusterTopologies)
	}
	return more
}
