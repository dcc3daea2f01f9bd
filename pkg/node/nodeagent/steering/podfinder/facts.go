// SPDX-License-Identifier: Apache-2.0

package podfinder

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// ContainerRef identifies a container that may be requesting.
type ContainerRef struct {
	UID       types.UID
	Container string
}

// Answer is kubelet's report on one pod.
type Answer struct {
	Unknown bool
	Holds   map[string][]string // container -> ids; never has plain init containers
}

// Facts holds the inputs of Resolve. All maps are of the question's resource.
type Facts struct {
	Question  question.Question
	Now       time.Time
	Pods      []*Pod
	Listed    bool                              // the API server was queried for the pods
	Unlisted  bool                              // and did not answer
	WaitUntil time.Time                         // when the wait for the watch ends; zero before it begins
	Fresh     map[types.UID]bool                // pods that arrived during the question
	Served    map[types.UID]map[string]Served   // devices allocated through the agent
	Recorded  map[types.UID]map[string][]string // kubelet's checkpoint; nil if it cannot be read
	Answers   map[types.UID]Answer
	Gone      map[types.UID]bool    // served, and unknown to kubelet when last queried
	Claimed   map[ContainerRef]bool // another question was answered for it just now
	Last      types.UID             // the pod that requested before
	ByBinding bool                  // pods lately came in the order of binding, not of age
	Mute      bool                  // kubelet does not respond: make no more queries
	// Active holds the pods that kubelet knows; nil before it was queried for all. The requesting pod is one
	// of them: kubelet knew it before its request, and does not forget a pod that it is admitting.
	Active   map[types.NamespacedName]bool
	Surveyed bool // a survey was tried for this question, and no other will be
}

// Served holds the devices that one container was given.
type Served struct {
	IDs []string // sorted
	At  time.Time
}

// ByPod is pod -> container -> sorted ids, of one resource.
type ByPod = map[types.UID]map[string][]string

// Take replaces the pods by a newer list and keeps kubelet's reports.
func (f *Facts) Take(pods []*Pod) {
	known := f.uids()
	f.Pods = pods
	for _, p := range f.Pods {
		if !known[p.UID] {
			f.Fresh[p.UID] = true
		}
	}
	f.RuleOut()
}

// Lacks reports whether pods has a pod that f does not have.
func (f *Facts) Lacks(pods []*Pod) bool {
	known := f.uids()
	return slices.ContainsFunc(pods, func(p *Pod) bool { return !known[p.UID] })
}

func (f *Facts) uids() map[types.UID]bool {
	known := make(map[types.UID]bool, len(f.Pods))
	for _, p := range f.Pods {
		known[p.UID] = true
	}
	return known
}
