// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestHardwareEvents: running pods get one event about each fault of their hardware and one about its
// end.
func TestHardwareEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		breakIt func(w *healthEnv)
		mend    func(w *healthEnv)
		want    []string
		after   []string
	}{
		"a GPU is lost": {
			breakIt: func(w *healthEnv) { w.sick[0] = lostGPU() },
			mend:    func(w *healthEnv) { clear(w.sick) },
			want:    []string{"pair Warning GPULost 0"},
			after:   []string{"pair Normal GPURecovered 0"},
		},
		"two GPUs of one pod fall ill": {
			breakIt: func(w *healthEnv) {
				w.sick[0], w.sick[3] = lostGPU(), since(v1alpha1.GPUHealth{Reason: "Xid 48"})
			},
			mend:  func(w *healthEnv) { clear(w.sick) },
			want:  []string{"pair Warning GPULost 0", "pair Warning GPUUnhealthy 3"},
			after: []string{"pair Normal GPURecovered 0", "pair Normal GPURecovered 3"},
		},
		"a GPU that two pods are said to hold": {
			breakIt: func(w *healthEnv) {
				w.run("late", "4")
				w.sick[4] = since(v1alpha1.GPUHealth{Reason: "the driver asks for a GPU reset"})
			},
			mend:  func(w *healthEnv) { clear(w.sick) },
			want:  []string{"late Warning GPUUnhealthy 4", "single Warning GPUUnhealthy 4"},
			after: []string{"late Normal GPURecovered 4", "single Normal GPURecovered 4"},
		},
		"GPUs are degraded under running pods": {
			breakIt: func(w *healthEnv) { w.sick[3], w.sick[4] = linkSick(), linkSick() },
			mend:    func(w *healthEnv) { clear(w.sick) },
			want:    []string{"pair Warning GPUDegraded 3", "single Warning GPUDegraded 4"},
			after:   []string{"pair Normal GPURecovered 3", "single Normal GPURecovered 4"},
		},
		"a GPU is partitioned": {
			breakIt: func(w *healthEnv) { w.mig[3] = true },
			mend:    func(w *healthEnv) { clear(w.mig) },
			want:    []string{"pair Warning GPUPartitioned 3"},
			after:   []string{"pair Normal GPURecovered 3"},
		},
		"the link of a pair is down": {
			breakIt: func(w *healthEnv) { w.down[[2]int{0, 3}] = true },
			mend:    func(w *healthEnv) { clear(w.down) },
			want:    []string{"pair Warning LinkDegraded 0 3"},
			after:   []string{"pair Normal LinkRecovered"},
		},
		"a GPU fails whose link is down, and the link stays down": {
			breakIt: func(w *healthEnv) {
				w.down[[2]int{0, 3}] = true
				w.publish()
				w.expect("down", "pair Warning LinkDegraded 0 3")
				w.sick[0] = lostGPU()
				w.publish()
				w.expect("lost as well", "pair Warning GPULost 0")
				clear(w.sick)
			},
			mend:  func(w *healthEnv) { clear(w.down) },
			want:  []string{"pair Normal GPURecovered 0"},
			after: []string{"pair Normal LinkRecovered"},
		},
		"a link that no ring goes over is down": {
			breakIt: func(w *healthEnv) { w.down[[2]int{5, 6}] = true },
			mend:    func(w *healthEnv) { clear(w.down) },
		},
		"a GPU is no longer part of the node": {
			breakIt: func(w *healthEnv) {
				w.run("last", "7")
				w.said()
				w.less = 1
			},
			mend:  func(w *healthEnv) { w.less = 0 },
			want:  []string{"last Warning GPULost 7"},
			after: []string{"last Normal GPURecovered 7"},
		},
		"a lost GPU of another scheduler's pod is no longer part of the node": {
			breakIt: func(w *healthEnv) {
				alien := w.run("alien", "7")
				alien.Annotations = nil
				w.put(alien)
				r := recorded(w.graph, "m=7")
				r[0].PodUID, r[0].Pod = "alien", "alien"
				w.sick[7] = lostGPU()
				w.publish(r...)
				w.expect("lost", "alien Warning GPULost 7")
				clear(w.sick)
				w.less = 1
				w.publish(r...)
			},
			mend: func(w *healthEnv) { w.less = 0 },
		},
		"all GPUs leave the node": {
			breakIt: func(w *healthEnv) {
				w.sick[0] = lostGPU()
				w.publish()
				w.expect("one is lost", "pair Warning GPULost 0")
				clear(w.sick)
				w.less = 8
			},
			mend:  func(w *healthEnv) { w.less = 0 },
			want:  []string{"pair Warning GPULost 0", "pair Warning GPULost 3", "single Warning GPULost 4"},
			after: []string{"pair Normal GPURecovered 0", "pair Normal GPURecovered 3", "single Normal GPURecovered 4"},
		},
		"lost, then degraded, is no recovery": {
			breakIt: func(w *healthEnv) {
				w.sick[0] = lostGPU()
				w.publish()
				w.expect("lost", "pair Warning GPULost 0")
				w.sick[0] = linkSick()
			},
			mend:  func(w *healthEnv) { clear(w.sick) },
			want:  []string{"pair Warning GPUDegraded 0"},
			after: []string{"pair Normal GPURecovered 0"},
		},
		"the driver's words differ from reading to reading": {
			breakIt: func(w *healthEnv) {
				w.sick[0] = lostGPU()
				w.publish()
				w.expect("lost", "pair Warning GPULost 0")
				h := w.sick[0]
				h.Reason = "GPU is lost: in other words" // the exporter keeps the time
				w.sick[0] = h
			},
			mend:  func(w *healthEnv) { clear(w.sick) },
			after: []string{"pair Normal GPURecovered 0"},
		},
		"kubelet's record and not the annotation says who holds it": {
			breakIt: func(w *healthEnv) {
				r := recorded(w.graph, "m=1,2")
				r[0].PodUID, r[0].Pod = "pair", "pair"
				w.sick[0], w.sick[1] = lostGPU(), lostGPU()
				w.publish(r...)
				w.expect("lost", "pair Warning GPULost 1")
				w.publish(r...)
			},
			mend:  func(w *healthEnv) { clear(w.sick) },
			after: nil, // it holds 0 and 3 again by its annotation, which no event was about
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newHealthEnv(t)
				w.run("pair", "0,3")
				w.run("single", "4")
				done := w.run("done", "0,3")
				done.Status.Phase = v1.PodSucceeded
				w.put(done)
				stop := w.lead()
				defer func() { stop() }()
				w.expect("while all is well")
				time.Sleep(time.Minute)
				tc.breakIt(w)
				w.publish(w.last.Status.Allocations...)
				w.expect("at the fault", tc.want...)
				w.publish(w.last.Status.Allocations...)
				time.Sleep(10 * recheck)
				w.expect("while it lasts")
				stop()
				w.restart()
				stop = w.lead()
				w.expect("after a restart of the controller")
				tc.mend(w)
				w.publish()
				w.expect("when it is mended", tc.after...)
				time.Sleep(10 * recheck)
				w.expect("later on")
			})
		})
	}
}

// TestDegradedChoiceEvents: a pod that was given a degraded GPU is not warned of it.
func TestDegradedChoiceEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHealthEnv(t)
		w.sick[4] = linkSick()
		time.Sleep(time.Minute)
		w.publish()
		w.run("single", "4")
		defer w.lead()()
		w.expect("it was chosen for that")
	})
}

// TestEventRetries: failed events are retried and old faults are not repeated.
func TestEventRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHealthEnv(t)
		w.run("pair", "0,3")
		stop := w.lead()
		w.broken.Store(true)
		w.sick[0] = lostGPU()
		w.publish()
		w.expect("without an API server")
		w.broken.Store(false)
		time.Sleep(time.Minute)
		w.expect("when it is back", "pair Warning GPULost 0")
		stop()
		// The API server drops events after an hour; a process that starts then does not repeat them.
		if err := w.client.EventsV1().Events("ns").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		w.client = fake.NewClientset()
		w.seenAt = 0
		time.Sleep(2 * eventTTL)
		w.restart()
		defer w.lead()()
		w.expect("after a restart two hours later")
		clear(w.sick)
		w.publish()
		w.expect("its end is news", "pair Normal GPURecovered 0")
	})
}

// TestLatePodEvents: a pod that comes after a fault gets its event. It was chosen on the graph before a
// link went down, and bound after its node was checked.
func TestLatePodEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHealthEnv(t)
		defer w.lead()()
		pod := w.run("pair", "0,3")
		if err := w.store.Delete(pod); err != nil {
			t.Fatal(err)
		}
		w.down[[2]int{0, 3}] = true
		w.publish()
		w.expect("before the pod is there")
		w.put(pod)
		time.Sleep(recheck + time.Second)
		w.expect("at the next look", "pair Warning LinkDegraded 0 3")
		time.Sleep(2 * newsTime)
		w.expect("later")
		if n := len(w.ctrl.hardware.news); n != 0 {
			t.Errorf("the news of %d nodes are kept", n)
		}
	})
}

// TestJustBoundPodEvents: a pod bound just before a fault gets its event. It is bound after the pods were
// last sorted by node, and its GPU is lost before they are sorted again.
func TestJustBoundPodEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHealthEnv(t)
		defer w.lead()()
		synctest.Wait() // the node has been checked
		w.run("pair", "0,3")
		w.sick[3] = lostGPU()
		w.publish()
		w.expect("long before the next recheck", "pair Warning GPULost 3")
	})
}

// TestFlappingLinkEvents: a flapping link does not flood its pod. A link fails and recovers every ten
// seconds for an hour.
func TestFlappingLinkEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHealthEnv(t)
		w.run("pair", "0,3")
		w.run("single", "4")
		defer w.lead()()
		const flaps = 360
		told := map[string]int{} // pod -> events
		for range flaps {
			for _, down := range []bool{true, false} {
				w.down[[2]int{0, 3}] = down
				w.publish()
				for _, line := range w.said() { // which waits for two seconds
					pod, _, _ := strings.Cut(line, " ")
					told[pod]++
				}
				time.Sleep(3 * time.Second)
			}
		}
		most := podEventBurst + int(time.Hour*podEventsPerHour/time.Hour)
		if n := told["pair"]; n < podEventBurst || n > most || told["single"] != 0 {
			t.Errorf("events of an hour %v, want %d to %d on pair and none on single", told, podEventBurst, most)
		}
		w.sick[4] = lostGPU()
		w.publish()
		w.expect("another pod is told at once", "single Warning GPULost 4")

		// The last event of pair is the final state.
		time.Sleep(2 * time.Hour / podEventsPerHour)
		w.said()
		list, err := w.client.EventsV1().Events("ns").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last, at := "", time.Time{}
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.Name == "pair" && !e.EventTime.Time.Before(at) {
				last, at = e.Reason, e.EventTime.Time
			}
		}
		if last != eventLinkRecovered {
			t.Errorf("the last event is %s at %s, want %s: the link is up", last, at, eventLinkRecovered)
		}
	})
}

// TestGonePodLimits: the event limiter of a pod is removed with it.
func TestGonePodLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHealthEnv(t)
		pod := w.run("pair", "0,3")
		defer w.lead()()
		w.sick[0] = lostGPU()
		w.publish()
		w.expect("told", "pair Warning GPULost 0")
		if n := len(w.ctrl.hardware.limits[testNode]); n != 1 {
			t.Errorf("%d pods have a limit, want 1", n)
		}
		if err := w.store.Delete(pod); err != nil {
			t.Fatal(err)
		}
		w.publish()
		w.expect("nobody is left")
		if n := len(w.ctrl.hardware.limits[testNode]); n != 0 {
			t.Errorf("%d pods have a limit, want none", n)
		}
	})
}

// TestUnmetDemand: an unmet demand is named.
func TestUnmetDemand(t *testing.T) {
	w := newHealthEnv(t)
	pod := w.run("pair", "0,3", podrequest.MinLinkKey, "NVLINK")
	w.down[[2]int{0, 3}] = true
	w.publish()
	got, _ := troubles(holdingOf(pod, nil), w.state.Nodes.Node(testNode), w.last.Status.GPUHealth)
	if len(got) != 1 || got[0].reason != eventLinkDegraded || !strings.HasSuffix(got[0].note, "not met any more: link class (node n1, pod ns/pair)") {
		t.Errorf("troubles %+v, want one that says that the pod's own min-link is not met", got)
	}
}

// TestEventNameLength: the name of an event is valid wherever the pod's name is cut, and its note fits,
// too.
func TestEventNameLength(t *testing.T) {
	const suffix = 17 // a point and eight bytes of a sum
	long := strings.Repeat("p", maxEventName-suffix)
	tests := map[string]struct {
		pod, note string
		wantName  int
		wantNote  int
	}{
		"a name of one part":            {strings.Repeat("p", 253), strings.Repeat("n", 5000), maxEventName, maxEventNote},
		"one that is cut behind a dash": {long[1:] + "-p-p-p", "n", maxEventName - 1, 1},
		"one that is cut behind a dot":  {long[1:] + ".p.p.p", "n", maxEventName - 1, 1},
		"a note that is cut in a rune":  {"p", strings.Repeat("n", maxEventNote-1) + "…", 1 + suffix, maxEventNote - 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newHealthEnv(t)
			pod := w.run(tc.pod, "0,3")
			e := w.ctrl.hardware.eventOf(holdingOf(pod, nil), w.last, v1.EventTypeWarning, &trouble{reason: eventGPULost, note: tc.note})
			if len(e.Name) != tc.wantName || len(e.Note) != tc.wantNote {
				t.Errorf("a name of %d and a note of %d bytes, want %d and %d", len(e.Name), len(e.Note), tc.wantName, tc.wantNote)
			}
			if wrong := validation.IsDNS1123Subdomain(e.Name); len(wrong) > 0 || !utf8.ValidString(e.Note) {
				t.Errorf("the API server refuses name %q or the note: %v", e.Name, wrong)
			}
		})
	}
}
