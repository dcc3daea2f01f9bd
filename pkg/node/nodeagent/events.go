// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
)

// reportingController is the reporting controller of the agent's events. The admission policy
// nvtopo-node-events accepts no other from an agent.
const reportingController = "nvtopo-node-agent"

const (
	// maxInstance limits the reporting instance of an event, in bytes, and maxNote its note: the API server
	// rejects longer ones.
	maxInstance = 128
	maxNote     = 1024
)

// NewEventSink returns an event sink whose events satisfy the admission policy nvtopo-node-events for the
// agent of node.
func NewEventSink(kube kubernetes.Interface, node string) events.EventSink {
	return nodeSink{&events.EventSinkImpl{Interface: kube.EventsV1()}, node}
}

// nodeSink writes events with the agent's node as the reporting instance, in place of the recorder's pod
// name.
type nodeSink struct {
	events.EventSink
	node string
}

// Create writes a copy of an event, because the broadcaster keeps the original.
func (s nodeSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e = e.DeepCopy()
	e.ReportingInstance = cut(s.node, maxInstance)
	e.Note = cut(e.Note, maxNote)
	return s.EventSink.Create(ctx, e)
}

// cut returns at most the first most bytes of s, without a partial character at the end.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}
