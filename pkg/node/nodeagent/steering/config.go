// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Time limits. Kubelet's sync loop waits for the agent's answers, so the agent's part ends within a
// second even if no other component responds.
const (
	// answerBudget is for a whole answer. When it is over, an answer is given from memory, before the
	// interposer gives up and rejects the pod.
	answerBudget = interposer.SteeringBudget
	// askBudget is for finding the requesting container. The rest of answerBudget is for the inner plugin's
	// preference or the agent's own pick.
	askBudget  = 750 * time.Millisecond
	listBudget = 700 * time.Millisecond // of the one live list, within askBudget
	// watchWait is how long a question waits for the watch before it requests the live list. The watch
	// delivers a pod at the time kubelet's own does. A list takes tens of milliseconds: it waits for its
	// turn at the API server, which also verifies first that it is not behind.
	watchWait = 30 * time.Millisecond
	// surveyBudget is the time after a question's arrival in which the agent may still request all pods from
	// kubelet. Kubelet finishes such a request even if its client has gone. It is over within the rest of
	// askBudget, before the answer is given.
	surveyBudget = 300 * time.Millisecond
	// recordWait is for reading kubelet's checkpoint, a file of some kilobytes, within askBudget. fileWait
	// is for the agent's own file, which is read once.
	recordWait = 200 * time.Millisecond
	fileWait   = 200 * time.Millisecond
)

const (
	// grantAge is how long an answer may wait for its Allocate, which kubelet calls at once.
	grantAge = 30 * time.Second
	// forgetAge is how long the devices served to a pod that no longer exists are kept: after a start not
	// all pods are known yet.
	forgetAge = 10 * time.Minute
)

// Config configures a Steering. Node and CheckpointPath are required.
type Config struct {
	// Node is the node whose pods are served. Annotations made for another node are
	// ignored.
	Node string
	// Strict rejects a pod that cannot get the devices chosen for it. Pods that refer to nvtopo's
	// annotations are always treated so.
	Strict bool
	// StateDir is the folder that keeps the served devices across restarts; if empty, they are only kept in
	// memory.
	StateDir string
	// CheckpointPath is kubelet's device manager checkpoint.
	CheckpointPath string
	// Registerer receives the metrics; may be nil.
	Registerer prometheus.Registerer
}

// Pods is the source of the node's pods.
type Pods interface {
	// Pods returns the pods from the informer's cache. They are shared and must not be changed.
	Pods() []*v1.Pod
	// Changed returns a channel that is closed when the watch delivers an event that an earlier call of Pods
	// may not have returned.
	Changed() <-chan struct{}
	// Live lists the pods from the API server.
	Live(ctx context.Context) ([]*v1.Pod, error)
}

// Kubelet returns the devices of an active pod's containers, and the active pods; see
// kubelet.PodResources.
type Kubelet = kubelet.Getter

// Graphs returns the answer tables of the node's graph.
type Graphs interface {
	// Tables returns the tables of a resource, or nil while the graph is not known.
	Tables(resource string) *nvtopo.Tables
}
