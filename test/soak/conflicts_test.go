// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// conflicts are the choices that kubelet could not give, by cause.
type conflicts struct {
	mu   sync.Mutex
	by   map[string]*tally
	open map[types.UID]string // without an event so far -> cause
}

// tally counts the conflicts of one cause by their outcome.
type tally struct {
	met, corrected, reported int
	longest                  time.Duration // until the annotation was corrected
}

func (c *conflicts) of(why string) *tally {
	if c.by == nil {
		c.by, c.open = map[string]*tally{}, map[types.UID]string{}
	}
	if c.by[why] == nil {
		c.by[why] = &tally{}
	}
	return c.by[why]
}

func (c *conflicts) meet(uid types.UID, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(why).met++
	c.open[uid] = why
}

func (c *conflicts) correct(why string, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.of(why)
	t.corrected++
	t.longest = max(t.longest, after)
}

// reported records the conflicts for which the node agent wrote an event.
func (w *testEnv) reported(ctx context.Context) error {
	told := map[types.UID]bool{}
	reasons, members := map[string]int{}, 0
	err := w.try(ctx, "list events", func(ctx context.Context) error {
		list, err := w.kube.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		clear(reasons)
		members = 0
		for i := range list.Items {
			e := &list.Items[i]
			reasons[e.Reason]++
			if e.Reason == "Preempted" && strings.Contains(e.Regarding.Name, "-gang-") {
				members++
			}
			if slices.Contains([]string{"GPUsReassigned", "GPUsSwapped"}, e.Reason) {
				told[e.Regarding.UID] = true
			}
		}
		return nil
	})
	w.mu.Lock()
	for reason, n := range reasons {
		w.counts["event "+reason] = n // of the whole run; events are kept for an hour
	}
	w.counts["gang members preempted"] = members
	w.mu.Unlock()
	c := &w.conflicts
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, why := range c.open {
		if told[uid] {
			c.of(why).reported++
			delete(c.open, uid)
		}
	}
	return err
}

func (c *conflicts) lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, why := range slices.Sorted(maps.Keys(c.by)) {
		t := c.by[why]
		out = append(out, fmt.Sprintf("%-60s %7d, annotation corrected %d (at most after %.1f s), told by an event %d",
			why, t.met, t.corrected, t.longest.Seconds(), t.reported))
	}
	if len(out) == 0 {
		out = append(out, "none")
	}
	return out
}

// echo is how long a scheduler may not have received the correction of an annotation: as long as the
// longest wait of the soak.
const echo = patience

// unlike reports whether a scheduler may believe that the pod has other devices.
func (h *held) unlike() bool {
	return h.other && (h.repaired.IsZero() || time.Since(h.repaired) < echo)
}
