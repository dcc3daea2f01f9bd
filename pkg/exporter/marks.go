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

// markSet is those of one field manager, and what became of them. Ours and the aliases
// are two: an admission policy of the release before that refuses an alias refuses none
// of ours, and an exporter of it, which takes what is ours over, need not remove one.
type markSet struct {
	manager             string
	labels, annotations []string // all keys that an exporter may have written
	cleaned             bool     // leftovers of an earlier run were dealt with
	sent                *marks   // written since the node was last read back
}

// writeMarks applies labels and annotations: the aliases first, so that one that an
// exporter wrote as its own before there were two managers is not missed meanwhile.
func (e *Exporter) writeMarks(ctx context.Context) error {
	return errors.Join(e.writeSet(ctx, &e.aliases, e.node.others), e.writeSet(ctx, &e.own, nil))
}

// writeSet applies the marks of a set, but for some keys. Applying also removes those of
// the set that are no longer wanted; once per process and Node is enough for keys that
// somebody else has come to own. Aliases that the admission policy refuses are tried
// again when the node is read back.
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
	e.readBackAt = time.Time{} // perhaps the Node is another one by now
	return err
}

// of returns the marks of a set, but for some keys.
func (m marks) of(s *markSet, but map[string]bool) marks {
	out := marks{labels: maps.Clone(m.labels), annotations: maps.Clone(m.annotations)}
	maps.DeleteFunc(out.labels, func(k, _ string) bool { return but[k] || !slices.Contains(s.labels, k) })
	maps.DeleteFunc(out.annotations, func(k, _ string) bool { return but[k] || !slices.Contains(s.annotations, k) })
	return out
}

// leftover reports whether a node carries a key of the set that is not wanted now, from
// an earlier run with other settings or hardware.
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
