// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// fakeNode is a node whose usage is unknown.
type fakeNode struct {
	node      *v1.Node
	topology  *usage.Node
	pods      []*v1.Pod
	nominated []fwk.PodInfo
	graph     placement.Reason
	reserved  Reserved
}

func (f *fakeNode) Node() *v1.Node                                     { return f.node }
func (f *fakeNode) Pods() []*v1.Pod                                    { return f.pods }
func (f *fakeNode) Nominated() []fwk.PodInfo                           { return f.nominated }
func (f *fakeNode) Topology() *usage.Node                              { return f.topology }
func (f *fakeNode) CheckGraph(*usage.Node, types.UID) placement.Reason { return f.graph }
func (f *fakeNode) Reserved(*usage.Node, fwk.NodeInfo, []usage.Reservation, types.UID) Reserved {
	return f.reserved
}

// fakeCluster has no nodes. Pods with the label "member" are in gangs.
type fakeCluster struct {
	pods     map[types.UID]*v1.Pod
	unsynced bool
}

func (f *fakeCluster) Nodes() iter.Seq[*Node]                               { return func(func(*Node) bool) {} }
func (f *fakeCluster) Attempts() (map[types.UID]bool, map[types.UID]string) { return nil, nil }
func (f *fakeCluster) Stored(pod *v1.Pod) *v1.Pod                           { return f.pods[pod.UID] }
func (f *fakeCluster) Serves(profile string) bool                           { return profile == "ours" }
func (f *fakeCluster) InGang(pod *v1.Pod) bool                              { return pod.Labels["member"] != "" }
func (f *fakeCluster) Synced() bool                                         { return !f.unsynced }
