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

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// FieldManager is the field manager of everything that the agent applies.
const FieldManager = "nvtopo-node-agent"

const (
	// busyPoll and busyLimit bound how long a round waits for the agent's answers to
	// kubelet. After busyLimit the round goes on anyway: it mostly reads a file.
	busyPoll  = 20 * time.Millisecond
	busyLimit = 500 * time.Millisecond

	// unknownGrace is how far the pods' informer may be behind kubelet. After that, a
	// record of an unknown pod is published without the pod's name.
	unknownGrace = 2 * time.Second
	// recordWait is how long a round waits for the file with kubelet's record.
	recordWait = 2 * time.Second
	// orphanGrace is how long the record of a pod counts if kubelet cannot be asked
	// about the pod. It is longer than kubelet takes to end a pod that was
	// force-deleted.
	orphanGrace = 2 * time.Minute
	// unaskedGrace is how long an ended pod counts if kubelet is too old to be asked.
	// Kubelet ends pods in the API server only after their containers have ended. Its
	// record keeps them until the next allocation, which may never come on a full node.
	unaskedGrace = 5 * time.Second
	// firstAsk and askInterval bound how often kubelet is asked about one ended pod;
	// the time between two requests grows from the first to the second. All clients
	// share kubelet's rate limit.
	firstAsk    = 50 * time.Millisecond
	askInterval = time.Second
	// maxAsks is how many ended pods kubelet is asked about in one round. With the gap
	// between rounds this is a fifth of its 100 answers a second. The rest is for
	// requests that delay an admission.
	maxAsks = 4

	// nodeInterval is how often the Node is read, to notice that it was created again.
	nodeInterval = 5 * time.Minute

	// maxDevices and maxDeviceID are the schema's limits for one entry of
	// status.allocations.
	maxDevices  = 64
	maxDeviceID = 96
)

// Pods are the node's pods.
type Pods interface {
	// Pods returns them as the informer has them. They must not be changed.
	Pods() []*v1.Pod
}

// Active asks kubelet whether it still counts the devices of a pod.
type Active interface {
	// Active is false only if kubelet said that it does not know the pod.
	Active(ctx context.Context, uid types.UID, namespace, name string) (bool, error)
	// Name returns the name of a pod that the API server no longer has, known from an
	// earlier allocation of the resource. ok is false if it is not known.
	Name(ctx context.Context, resource string, uid types.UID) (namespace, name string, ok bool)
}

// Extra knows the CPUs that containers are confined to.
type Extra interface {
	// CPUs returns them in the kernel's list format, or "" if the container is not
	// confined.
	CPUs(uid types.UID, container string) string
}

// Config configures a Verifier. Node, CheckpointPath and Topology are required; all
// other fields have defaults.
type Config struct {
	// Node is the name of the node.
	Node string
	// Namespace of the Lease; nvtopo-system by default.
	Namespace string
	// CheckpointPath is the file with the record of kubelet's device manager.
	CheckpointPath string
	// Strict says that a container does not start with other devices than chosen.
	Strict bool
	// Topology returns the node's object as the agent's informer has it, or nil if
	// there is none. Call Trigger when it changes.
	Topology func() *v1alpha1.NodeGPUTopology
	// Active asks whether kubelet counts an ended pod's devices. Without it, they count
	// until kubelet's record drops them or orphanGrace is over.
	Active Active
	// Extra knows containers' CPUs; may be nil.
	Extra Extra
	// Busy reports that kubelet waits for an answer from the agent; may be nil.
	Busy func() bool
	// Interval is the time between two rounds without an event; 10 s by default.
	Interval time.Duration
	// MinGap is the least time between two rounds, and so between two writes; 200 ms by
	// default.
	MinGap time.Duration
	// Registerer takes the metrics; may be nil.
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
		return c, errors.New("the function Topology is missing")
	}
	if c.Interval < 0 || c.MinGap < 0 {
		return c, errors.New("intervals must not be negative")
	}
	if c.Namespace == "" {
		c.Namespace = release.Namespace
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

// noCPUs is an Extra for a node where nothing confines containers.
type noCPUs struct{}

func (noCPUs) CPUs(types.UID, string) string { return "" }
