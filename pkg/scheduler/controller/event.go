// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	actionWatch = "WatchingHardware"
	// maxEventName and maxEventNote are the API server's limits.
	maxEventName = 253
	maxEventNote = 1024
)

// write writes one event on the pod. Events with the same content have the same name:
// if the event exists already, another leader has written it.
func (w *hardware) write(ctx context.Context, h *holding, t *v1alpha1.NodeGPUTopology, kind string, tr *trouble) error {
	limit := w.limitOf(t.Name, h.pod.UID)
	if limit.TokensAt(w.clock.Now()) < 1 {
		return fmt.Errorf("event %s on pod %s/%s: %w", tr.reason, h.pod.Namespace, h.pod.Name, errTold)
	}
	if err := w.limit.Wait(ctx); err != nil {
		return err
	}
	_, err := w.client.EventsV1().Events(h.pod.Namespace).Create(ctx, w.eventOf(h, t, kind, tr), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("event %s on pod %s/%s: %w", tr.reason, h.pod.Namespace, h.pod.Name, err)
	}
	limit.AllowN(w.clock.Now(), 1) // an event that was not written is not charged
	hardwareEvents.WithLabelValues(tr.reason).Inc()
	return nil
}

func (w *hardware) eventOf(h *holding, t *v1alpha1.NodeGPUTopology, kind string, tr *trouble) *eventsv1.Event {
	episode := ""
	if !tr.since.IsZero() {
		episode = tr.since.UTC().String()
	} else if tr.gpu == "" {
		episode = strconv.FormatInt(t.Generation, 10) // links are part of the spec
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %q %s", h.pod.UID, tr.reason, tr.gpu, tr.text, episode))
	suffix := "." + hex.EncodeToString(sum[:8])
	name := h.pod.Name
	if len(name) > maxEventName-len(suffix) {
		name = strings.TrimRight(name[:maxEventName-len(suffix)], "-.") // no part of a name ends so
	}
	note := tr.note
	if len(note) > maxEventNote {
		note = strings.ToValidUTF8(note[:maxEventNote], "")
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.pod.Namespace, Name: name + suffix},
		EventTime:  metav1.NewMicroTime(w.clock.Now()), ReportingController: "nvtopo.dev/controller", ReportingInstance: LeaseName,
		Action: actionWatch, Reason: tr.reason, Type: kind, Note: note,
		Regarding: v1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: h.pod.Namespace, Name: h.pod.Name, UID: h.pod.UID, ResourceVersion: h.pod.ResourceVersion,
		},
		Related: &v1.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind, Name: t.Name, UID: t.UID},
	}
}
