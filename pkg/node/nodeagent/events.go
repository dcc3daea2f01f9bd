// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
)

// reportingController is the source that the events name. The admission policy nvtopo-node-events
// takes no other from an agent.
const reportingController = "nvtopo-node-agent"

const (
	// maxInstance bounds the reporter of an event, in bytes, and maxNote its words: the API server
	// refuses longer ones.
	maxInstance = 128
	maxNote     = 1024
)

// NewEventSink returns a sink of events that the admission policy nvtopo-node-events takes from the agent of
// a node.
func NewEventSink(kube kubernetes.Interface, node string) events.EventSink {
	return nodeSink{&events.EventSinkImpl{Interface: kube.EventsV1()}, node}
}

// nodeSink writes events with the agent's node as the reporting instance. The recorder's own is the
// name of the pod.
type nodeSink struct {
	events.EventSink
	node string
}

// Create writes an event. The broadcaster keeps its own, which stays as it is.
func (s nodeSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e = e.DeepCopy()
	e.ReportingInstance = cut(s.node, maxInstance)
	e.Note = cut(e.Note, maxNote)
	return s.EventSink.Create(ctx, e)
}

// cut returns the first bytes of a text, without half a character at the end.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}
