// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// marks are the labels and annotations of a node.
type marks struct {
	labels, annotations map[string]string
}

// markSet holds the marks of one field manager and their state. The keys under nvtopo.dev and the aliases
// are two sets for two reasons: an older admission policy that refuses an alias then refuses no other
// key, and an older exporter, which takes over the nvtopo.dev keys, need not remove an alias.
type markSet struct {
	manager             string
	labels, annotations []string // all keys that an exporter may have written
	cleaned             bool     // leftovers of an earlier run were removed
	sent                *marks   // what was written since the node was last read back
}

// writeMarks applies labels and annotations, the aliases first. An older exporter with
// only one field manager may have written an alias as its own; in this order the alias
// is never missing.
func (e *Exporter) writeMarks(ctx context.Context) error {
	return errors.Join(e.writeSet(ctx, &e.aliases, e.node.others), e.writeSet(ctx, &e.own, nil))
}

// writeSet applies the marks of a set except the keys in but. Applying also removes keys of the set that
// are no longer wanted; for keys that another manager owns now, once per process and Node is enough.
// Aliases that the admission policy refuses are retried when the node is read back.
func (e *Exporter) writeSet(ctx context.Context, s *markSet, but map[string]bool) error {
	want := e.marks.of(s, but)
	stale := !s.cleaned && s.leftover(want, e.node)
	if s.sent != nil && want.equal(*s.sent) {
		return nil
	}
	if !stale && !want.differ(e.node.labels, e.node.annotations) {
		s.cleaned = true
		return nil
	}
	got, err := e.api.applyMarks(ctx, e.node.uid, s.manager, want)
	switch {
	case e.metrics.wrote(objectLabels, err) == nil:
		e.node, s.cleaned, s.sent = got, true, &want
		return nil
	case s == &e.aliases && apierrors.IsForbidden(err):
		s.sent = &want
		klog.FromContext(ctx).Info("The labels and the annotation outside nvtopo.dev were refused", "reason", err.Error())
		return nil
	}
	e.readBackAt = time.Time{} // the Node may have been replaced
	return err
}

// of returns the marks of a set except the keys in but.
func (m marks) of(s *markSet, but map[string]bool) marks {
	out := marks{labels: maps.Clone(m.labels), annotations: maps.Clone(m.annotations)}
	maps.DeleteFunc(out.labels, func(k, _ string) bool { return but[k] || !slices.Contains(s.labels, k) })
	maps.DeleteFunc(out.annotations, func(k, _ string) bool { return but[k] || !slices.Contains(s.annotations, k) })
	return out
}

// leftover reports whether a node has a key of the set that is not wanted now, from an
// earlier run with other settings or hardware.
func (s *markSet) leftover(want marks, node nodeView) bool {
	return remains(s.labels, want.labels, node.labels) || remains(s.annotations, want.annotations, node.annotations)
}

func remains(keys []string, want, have map[string]string) bool {
	for _, k := range keys {
		_, wanted := want[k]
		if _, there := have[k]; there && !wanted {
			return true
		}
	}
	return false
}

// equal reports whether two sets of marks are the same.
func (m marks) equal(o marks) bool {
	return maps.Equal(m.labels, o.labels) && maps.Equal(m.annotations, o.annotations)
}

// differ reports whether a node lacks any of the wanted marks.
func (m marks) differ(labels, annotations map[string]string) bool {
	return lacks(m.labels, labels) || lacks(m.annotations, annotations)
}

func lacks(want, have map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return true
		}
	}
	return false
}
