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

// Time limits. Kubelet's sync loop waits for our answers, so our part of an answer ends
// within a second even if nothing else answers.
const (
	// answerBudget is for a whole answer. When it is over, an answer is given from
	// memory, before the interposer gives up and refuses the pod.
	answerBudget = interposer.SteeringBudget
	// askBudget is for finding out who asks. The rest of answerBudget is for the inner
	// plugin's preference or our own pick.
	askBudget  = 750 * time.Millisecond
	listBudget = 700 * time.Millisecond // of the one live list, within askBudget
	// watchWait is how long a question waits for the watch before it asks for the live
	// list. The watch delivers a pod at the time kubelet's own does. A list takes tens
	// of milliseconds: it waits for its turn at the API server, which also makes sure
	// first that it is not behind.
	watchWait = 30 * time.Millisecond
	// surveyBudget is how long after the question came we may still ask kubelet for all
	// its pods. Kubelet finishes such a request even if nobody waits any more. It is
	// over within the rest of askBudget, before our answer is given.
	surveyBudget = 300 * time.Millisecond
	// recordWait is for reading kubelet's checkpoint, a file of some kilobytes, within
	// askBudget. fileWait is for our own file, which is read once.
	recordWait = 200 * time.Millisecond
	fileWait   = 200 * time.Millisecond
)

const (
	// grantAge is how long an answer may wait for its Allocate, which kubelet calls at
	// once.
	grantAge = 30 * time.Second
	// forgetAge is how long we keep what was served to a pod that no longer exists:
	// after a start not all pods are known yet.
	forgetAge = 10 * time.Minute
)

// Config configures a Steering. Node and CheckpointPath are required.
type Config struct {
	// Node is the node whose pods are served. Annotations made for another node are
	// ignored.
	Node string
	// Strict refuses a pod that cannot get the devices chosen for it. Pods that refer
	// to our annotations are always treated so.
	Strict bool
	// StateDir keeps what was served across restarts; if empty, it is only kept in
	// memory.
	StateDir string
	// CheckpointPath is kubelet's device manager checkpoint.
	CheckpointPath string
	// Registerer takes the metrics; may be nil.
	Registerer prometheus.Registerer
}

// Pods are the pods of the node.
type Pods interface {
	// Pods returns them as the watch knows them. They are shared and must not be
	// changed.
	Pods() []*v1.Pod
	// Changed returns a channel that is closed when the watch delivers something that
	// an earlier call of Pods may not have returned.
	Changed() <-chan struct{}
	// Live asks the API server for them.
	Live(ctx context.Context) ([]*v1.Pod, error)
}

// Kubelet answers what an active pod's containers hold, and which pods are active; see
// kubelet.PodResources.
type Kubelet = kubelet.Getter

// Graphs returns the answer tables of the node's graph.
type Graphs interface {
	// Tables returns those of a resource, or nil while the graph is not known.
	Tables(resource string) *nvtopo.Tables
}
