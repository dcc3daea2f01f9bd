// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Time limits. Kubelet's sync loop stands still while it waits for an answer,
// so our own part of one ends within a second whatever else does not answer.
const (
	// answerBudget is for a whole answer: after it, one is given from memory, before the
	// interposer gives up on us. More would have it refuse the pod instead.
	answerBudget = interposer.SteeringBudget
	// askBudget is for finding out who asks; what is left of answerBudget is for the
	// inner plugin's preference or our own pick.
	askBudget  = 750 * time.Millisecond
	listBudget = 700 * time.Millisecond // of the one live list, within askBudget
	// watchWait is how long a question waits for the watch before it takes the live list. The
	// watch tells of a pod when kubelet's does, while a list waits for its turn at the API server
	// and for that to be sure that it is not behind: tens of milliseconds.
	watchWait = 30 * time.Millisecond
	// surveyBudget is how long after the question came kubelet is still asked for all its
	// pods. What it has got it carries out, also when nobody waits any more; within the rest of
	// askBudget that is over, and the answer not given.
	surveyBudget = 300 * time.Millisecond
	// recordWait is for reading kubelet's checkpoint, a file of some kilobytes, within
	// askBudget; fileWait for our own file, which is read once.
	recordWait = 200 * time.Millisecond
	fileWait   = 200 * time.Millisecond
)

const (
	// grantAge is how long an answer may be waiting for its Allocate, which
	// kubelet calls at once.
	grantAge = 30 * time.Second
	// settleAge is how long what was just answered or allocated is believed
	// although kubelet's checkpoint does not show it yet: kubelet writes that
	// after the last resource of the container.
	settleAge = 2 * time.Second
	// forgetAge is how long what was served to a pod nobody knows any more is kept:
	// after a start the pods are not all there yet.
	forgetAge = 10 * time.Minute
)

// Config is what a Steering is told. Node and CheckpointPath are required.
type Config struct {
	// Node is the node whose pods are served; annotations made for another are ignored.
	Node string
	// Strict refuses a pod that cannot get the devices chosen for it. Pods that
	// refer to our annotations are treated so in any case.
	Strict bool
	// StateDir keeps what was served across restarts; empty keeps it in memory.
	StateDir string
	// CheckpointPath is kubelet's device manager checkpoint.
	CheckpointPath string
	// Registerer takes the metrics; nil leaves them uncollected.
	Registerer prometheus.Registerer
}

// Pods are the pods of the node.
type Pods interface {
	// Pods returns them as the watch has them; they are shared and read only.
	Pods() []*v1.Pod
	// Changed returns a channel that is closed when the watch delivers something that Pods,
	// called before, may not have returned.
	Changed() <-chan struct{}
	// Live asks the API server for them.
	Live(ctx context.Context) ([]*v1.Pod, error)
}

// Kubelet tells what an active pod's containers hold, and which pods are active; see
// kubelet.PodResources.
type Kubelet = kubelet.Getter

// Graphs gives the exact tables of the node's graph.
type Graphs interface {
	// Tables returns those of a resource, nil while the graph is not known.
	Tables(resource string) *nvtopo.Tables
}
