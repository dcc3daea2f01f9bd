// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// patience is how long a test waits for anything that has to come, a node's containers too.
const patience = 5 * time.Minute

// state is which release each part is of.
type state struct {
	manifests, scheduler, exporter release
	compact                        bool // the exporters publish compact graphs
}

func (s state) String() string {
	return fmt.Sprintf("%s manifests, %s scheduler, %s exporter, compact: %t", s.manifests, s.scheduler, s.exporter, s.compact)
}

// TestOneReleaseApart walks through ways in which the parts can be of two releases,
// with pods running all the way.
func TestOneReleaseApart(t *testing.T) {
	o, n := before(), after()
	at := func(manifests, scheduler, exporter release) state {
		return state{manifests: manifests, scheduler: scheduler, exporter: exporter}
	}
	compact := func(s state) state { s.compact = true; return s }
	tests := map[string][]state{
		"the documented upgrade, and back": {
			at(o, o, o), at(n, o, o), at(n, n, o), at(n, n, n), at(n, n, o), at(n, o, o), at(o, o, o),
		},
		"the other way round": {
			at(o, o, o), at(o, o, n), at(o, n, n), at(n, n, n), at(o, n, n), at(o, o, n), at(o, o, o),
		},
		"whatever can be beside each other": {
			at(o, n, o), at(n, n, o), at(n, o, o), at(n, o, n), at(n, n, n), at(o, n, n), at(o, o, n), at(o, n, n),
		},
		"compact graphs while all are of the new release, and what the old definition makes of them": {
			at(o, o, o), at(n, n, n), compact(at(n, n, n)), compact(at(o, n, n)), compact(at(n, n, n)), at(n, n, n), at(o, o, o),
		},
	}
	for name, states := range tests {
		t.Run(name, func(t *testing.T) { walk(t, states) })
	}
}

func walk(t *testing.T, states []state) {
	t.Helper()
	l := newTestEnv(t, states[0].manifests)
	l.rollExporters(t, states[0].exporter, states[0].compact)
	l.rollScheduler(t, states[0].scheduler)
	l.create(t, residents()...)
	lives := map[string]life{}
	for _, p := range residents() {
		lives[p.Name] = lifeOf(l.running(t, p.Name))
	}
	for i, now := range states {
		begun := time.Now()
		if i > 0 {
			was := states[i-1]
			if now.manifests.name != was.manifests.name {
				l.install(t, now.manifests)
			}
			if now.scheduler.name != was.scheduler.name {
				l.rollScheduler(t, now.scheduler)
			}
			if now.exporter.name != was.exporter.name || now.compact != was.compact {
				l.rollExporters(t, now.exporter, now.compact)
			}
		}
		when := fmt.Sprintf("step %d, %s", i, now)
		l.published(t, when, now.compact && now.manifests.name == after().name)
		l.quiet(t, when)
		l.comeAndGo(t, i, lives)
		l.unchanged(t, when, lives)
		l.sound(t, when)
		if dir := os.Getenv("NVTOPO_SKEW_CAPTURE"); dir != "" && i == 0 && now.manifests.name == "old" && now.scheduler.name == "old" {
			l.capture(t, dir)
		}
		t.Logf("%5.1f s: %s: %d pods live", time.Since(begun).Seconds(), when, len(lives))
	}
}

// comeAndGo replaces one pod by another, and adds one that stays for a while.
func (e *testEnv) comeAndGo(t *testing.T, step int, lives map[string]life) {
	t.Helper()
	e.create(t, gpuPod(fmt.Sprintf("passing-%d", step), 2, nil))
	e.running(t, fmt.Sprintf("passing-%d", step))
	e.create(t, gpuPod(fmt.Sprintf("kept-%d", step), 1, nil))
	e.remove(t, fmt.Sprintf("passing-%d", step))
	next := fmt.Sprintf("next-%d", step)
	e.create(t, gpuPod(next, 3, nil))
	e.running(t, next)
	kept := fmt.Sprintf("kept-%d", step)
	lives[kept] = lifeOf(e.running(t, kept))
	e.remove(t, next)
}

// published waits until all graphs are compact, or none.
func (e *testEnv) published(t *testing.T, when string, compact bool) {
	t.Helper()
	testkit.Eventually(t, patience, fmt.Sprintf("%s: compact graphs: %t", when, compact), func(ctx context.Context) (bool, string) {
		list, err := e.dynamic.Resource(v1alpha1.GroupVersionResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			rows, _, _ := unstructured.NestedSlice(list.Items[i].Object, "spec", "linkRows")
			links, _, _ := unstructured.NestedSlice(list.Items[i].Object, "spec", "links")
			if (len(rows) > 0) != compact || (len(links) > 0) == compact {
				return false, fmt.Sprintf("%s has %d rows and %d links", list.Items[i].GetName(), len(rows), len(links))
			}
		}
		return len(list.Items) == len(e.nodes), fmt.Sprintf("%d objects", len(list.Items))
	})
}

// calm is how long the nodes' objects must stay as they are, at one reading a second.
const calm = 4 * time.Second

// quiet waits until nobody writes the nodes' objects any more: two releases that
// want different things in one field would write it for ever.
func (e *testEnv) quiet(t *testing.T, when string) {
	t.Helper()
	versions := func(ctx context.Context) string {
		list, err := e.dynamic.Resource(v1alpha1.GroupVersionResource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var text strings.Builder
		for i := range list.Items {
			text.WriteString(list.Items[i].GetName() + " " + list.Items[i].GetResourceVersion() + "; ")
		}
		return text.String()
	}
	last, since := "", time.Now()
	testkit.Eventually(t, patience, when+": nobody writes the nodes' objects", func(ctx context.Context) (bool, string) {
		now := versions(ctx)
		if now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= calm, "written until the end, now " + now
	})
}
