// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// FieldManager is the name under which everything is applied.
const FieldManager = "nvtopo-node-agent"

const (
	// busyPoll and busyLimit bound how long a round waits for kubelet's questions to
	// be answered; a round reads a file and asks nobody, so it may go on all the same.
	busyPoll  = 20 * time.Millisecond
	busyLimit = 500 * time.Millisecond

	// unknownGrace is how long the pods' informer may be behind kubelet before a
	// record of an unknown pod is published without its name.
	unknownGrace = 2 * time.Second
	// recordWait is how long a round waits for the file with kubelet's record.
	recordWait = 2 * time.Second
	// orphanGrace is how long the record of a pod that cannot be asked for counts:
	// longer than kubelet takes to end a pod that was deleted by force.
	orphanGrace = 2 * time.Minute
	// unaskedGrace is how long an ended pod counts where kubelet is too old to be asked.
	// It ends pods in the API server only after their containers, and its record keeps
	// them until the next allocation, which a full node would never see.
	unaskedGrace = 5 * time.Second
	// firstAsk and askInterval bound how often kubelet is asked about one ended pod,
	// from soon to rarely: its answers are rationed for all clients together.
	firstAsk    = 50 * time.Millisecond
	askInterval = time.Second
	// maxAsks is how many ended pods kubelet is asked about in one round. With the gap
	// between rounds that is a fifth of its 100 answers a second: the rest is for those
	// who hold up an admission while they wait.
	maxAsks = 4

	// nodeInterval is how often the Node is read, to notice that it was made anew.
	nodeInterval = 5 * time.Minute

	// maxDevices and maxDeviceID are the schema's limits of one of status.allocations.
	maxDevices  = 64
	maxDeviceID = 96
)

// Pods are the node's pods.
type Pods interface {
	// Pods returns them as the informer has them; they are only read.
	Pods() []*v1.Pod
}

// Active asks kubelet whether it still counts the devices of a pod.
type Active interface {
	// Active is false only if kubelet said that it does not know such a pod.
	Active(ctx context.Context, uid types.UID, namespace, name string) (bool, error)
	// Name tells the name of a pod that the API server no longer has, by what it was
	// once given of a resource; ok is false if that is not known.
	Name(ctx context.Context, resource string, uid types.UID) (namespace, name string, ok bool)
}

// Extra knows the CPUs that containers are confined to.
type Extra interface {
	// CPUs returns them in the kernel's list format, empty if there is no such limit.
	CPUs(uid types.UID, container string) string
}

// Config is what a Verifier is told. Node, CheckpointPath and Topology are
// required; the zero value of the rest is usable.
type Config struct {
	// Node is the name of the node.
	Node string
	// Namespace of the Lease; nvtopo-system by default.
	Namespace string
	// CheckpointPath is where kubelet's device manager keeps its record.
	CheckpointPath string
	// Strict says that a container with other devices than chosen does not start.
	Strict bool
	// Topology returns the node's object as the agent's informer has it, nil while
	// there is none. Trigger is to be called when it changes.
	Topology func() *v1alpha1.NodeGPUTopology
	// Active tells whether kubelet counts an ended pod's devices; without it they
	// count until kubelet's record drops them or orphanGrace is over.
	Active Active
	// Extra knows containers' CPUs; may be nil.
	Extra Extra
	// Busy says that kubelet waits for an answer of the agent's; may be nil.
	Busy func() bool
	// Interval between two looks without an event; 10 s by default.
	Interval time.Duration
	// MinGap is the least time between two rounds, hence writes; 200 ms by default.
	MinGap time.Duration
	// Registerer takes the metrics; nil registers them nowhere.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	if msgs := validation.IsDNS1123Subdomain(c.Node); len(msgs) > 0 {
		return c, fmt.Errorf("node name %q: %s", c.Node, msgs[0])
	}
	if c.CheckpointPath == "" {
		return c, errors.New("the path of kubelet's checkpoint is empty")
	}
	if c.Topology == nil {
		return c, errors.New("nothing tells the node's topology")
	}
	if c.Interval < 0 || c.MinGap < 0 {
		return c, errors.New("intervals must not be negative")
	}
	if c.Namespace == "" {
		c.Namespace = "nvtopo-system"
	}
	if c.Interval == 0 {
		c.Interval = 10 * time.Second
	}
	if c.MinGap == 0 {
		c.MinGap = 200 * time.Millisecond
	}
	if c.Busy == nil {
		c.Busy = func() bool { return false }
	}
	if c.Extra == nil {
		c.Extra = noCPUs{}
	}
	return c, nil
}

// noCPUs is an Extra for a node where nobody confines containers.
type noCPUs struct{}

func (noCPUs) CPUs(types.UID, string) string { return "" }
