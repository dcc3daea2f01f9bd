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

// FieldManager is the field manager of the agent's applies.
const FieldManager = "nvtopo-node-agent"

const (
	// busyPoll and busyLimit limit how long a round waits for the agent's answers to kubelet. After
	// busyLimit the round continues anyway: it mostly reads a file.
	busyPoll  = 20 * time.Millisecond
	busyLimit = 500 * time.Millisecond

	// unknownGrace is how far the pods' informer may be behind kubelet. After that, a
	// record of an unknown pod is published without the pod's name.
	unknownGrace = 2 * time.Second
	// recordWait is how long a round waits for the file with kubelet's record.
	recordWait = 2 * time.Second
	// orphanGrace is how long the record of a pod stays valid if kubelet cannot be queried about the pod. It
	// is longer than kubelet takes to end a pod that was force-deleted.
	orphanGrace = 2 * time.Minute
	// unaskedGrace is how long an ended pod's record stays valid if kubelet is too old for the query.
	// Kubelet ends pods in the API server only after their containers have ended. Its record keeps them
	// until the next allocation, which may never come on a full node.
	unaskedGrace = 5 * time.Second
	// firstAsk and askInterval limit how often kubelet is queried about one ended pod; the time between two
	// queries grows from the first to the second. All clients share kubelet's rate limit.
	firstAsk    = 50 * time.Millisecond
	askInterval = time.Second
	// maxAsks is the number of ended pods that kubelet is queried about in one round. With the gap between
	// rounds this is a fifth of its 100 answers a second. The rest is for requests that delay an admission.
	maxAsks = 4

	// nodeInterval is the period of reading the Node, to detect that it was created again.
	nodeInterval = 5 * time.Minute

	// maxDevices and maxDeviceID are the schema's limits for one entry of status.allocations.
	maxDevices  = 64
	maxDeviceID = 96
)

// Pods is the source of the node's pods.
type Pods interface {
	// Pods returns the pods from the informer's cache. They must not be changed.
	Pods() []*v1.Pod
}

// Active reports whether kubelet still treats the devices of a pod as allocated.
type Active interface {
	// Active returns false only if kubelet reported that it does not know the pod.
	Active(ctx context.Context, uid types.UID, namespace, name string) (bool, error)
	// Name returns the name of a pod that the API server no longer has, known from an
	// earlier allocation of the resource. ok is false if it is not known.
	Name(ctx context.Context, resource string, uid types.UID) (namespace, name string, ok bool)
}

// Extra returns the CPUs that containers are confined to.
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
	// CheckpointPath is the device manager's checkpoint file.
	CheckpointPath string
	// Strict is true if a container does not start with other devices than chosen.
	Strict bool
	// Topology returns the node's object from the agent's informer, or nil. The agent calls Trigger when it
	// changes.
	Topology func() *v1alpha1.NodeGPUTopology
	// Active reports whether kubelet still has an ended pod's devices allocated. Without it, the record
	// stays valid until kubelet drops it or orphanGrace is over.
	Active Active
	// Extra returns containers' CPUs; may be nil.
	Extra Extra
	// Busy reports whether kubelet waits for an answer from the agent; may be nil.
	Busy func() bool
	// Interval is the time between two rounds without an event; 10 s by default.
	Interval time.Duration
	// MinGap is the least time between two rounds, and so between two writes; 200 ms by
	// default.
	MinGap time.Duration
	// Registerer receives the metrics; may be nil.
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

// noCPUs is the Extra of a node on which containers are not confined.
type noCPUs struct{}

func (noCPUs) CPUs(types.UID, string) string { return "" }
