// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
)

func newSteering(tb testing.TB, state string, pods Pods, k Kubelet) *Steering {
	tb.Helper()
	s, err := New(Config{Node: testNode, StateDir: state, CheckpointPath: filepath.Join(tb.TempDir(), "none")}, pods, k, graphs{}, clock.RealClock{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestServedAfterRestart: the record of what was served survives a restart.
func TestServedAfterRestart(t *testing.T) {
	dir := t.TempDir()
	s := newSteering(t, dir, newAPI(), newModel(t, 8, 1))
	p := testPod(1, asks("main", 2))
	for _, resource := range []string{gpu, "example.com/nic"} {
		sh := s.shelf(testLogger, resource)
		sh.mu.Lock()
		sh.serve(&podfinder.Asker{Pod: p, Container: &p.Containers[0]}, gpus(1, 2), epoch)
		sh.mu.Unlock()
	}
	s.save(testLogger)
	back := newSteering(t, dir, newAPI(), newModel(t, 8, 1)).shelf(testLogger, gpu)
	want := map[types.UID]map[string]podfinder.Served{"uid-p1": {"main": {IDs: gpus(1, 2), At: epoch}}}
	if diff := cmp.Diff(want, back.servedCopy()); diff != "" {
		t.Errorf("served after a restart (-want +got):\n%s", diff)
	}
	if got := back.served["uid-p1"]; got.namespace != "ns" || got.name != "p1" {
		t.Errorf("pod is %s/%s, want ns/p1", got.namespace, got.name)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Errorf("files %v, %v; want one a resource and no other", files, err)
	}
}

// TestCorruptFile: a corrupt file is set aside.
func TestCorruptFile(t *testing.T) {
	cases := map[string]string{
		"empty":                    "",
		"cut short":                `{"version":1,"resource":"nvidia.com/gpu","pods":[{"uid":"u"`,
		"of another version":       `{"version":2,"resource":"nvidia.com/gpu","pods":[]}`,
		"of another resource":      `{"version":1,"resource":"example.com/nic","pods":[]}`,
		"with text behind":         `{"version":1,"resource":"nvidia.com/gpu","pods":[]} {}`,
		"with a pod without uid":   `{"version":1,"resource":"nvidia.com/gpu","pods":[{"uid":"","containers":[]}]}`,
		"with a pod twice":         `{"version":1,"resource":"nvidia.com/gpu","pods":[{"uid":"u","containers":[]},{"uid":"u","containers":[]}]}`,
		"with a container twice":   `{"version":1,"resource":"nvidia.com/gpu","pods":[{"uid":"u","containers":[{"name":"c","ids":["a"],"at":"2026-01-01T00:00:00Z"},{"name":"c","ids":["a"],"at":"2026-01-01T00:00:00Z"}]}]}`,
		"with an id twice":         `{"version":1,"resource":"nvidia.com/gpu","pods":[{"uid":"u","containers":[{"name":"c","ids":["a","a"],"at":"2026-01-01T00:00:00Z"}]}]}`,
		"with a container of none": `{"version":1,"resource":"nvidia.com/gpu","pods":[{"uid":"u","containers":[{"name":"c","ids":[],"at":"2026-01-01T00:00:00Z"}]}]}`,
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := newSteering(t, dir, newAPI(), newModel(t, 8, 1))
			path := s.path(gpu)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			sh := s.shelf(testLogger, gpu)
			if len(sh.served) != 0 {
				t.Errorf("took %v from it", sh.served)
			}
			if aside, err := os.ReadFile(path + ".corrupt"); err != nil || string(aside) != text {
				t.Errorf("set aside: %q, %v; want the file as it was", aside, err)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("the file is still in its place: %v", err)
			}
		})
	}
}

func FuzzRestore(f *testing.F) {
	f.Add(`{"version":1,"resource":"nvidia.com/gpu","pods":[{"uid":"u","namespace":"n","name":"p","containers":[{"name":"c","ids":["b","a"],"at":"2026-01-01T00:00:00Z"}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		sh := newShelf(gpu)
		if err := sh.restore([]byte(text)); err != nil {
			if len(sh.served) != 0 {
				t.Errorf("an error, and yet %v", sh.served)
			}
			return
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := writeFile(path, sh.stored()); err != nil {
			// A time beyond the year 9999 can be read and not written.
			if !strings.Contains(err.Error(), "year") {
				t.Fatal(err)
			}
			return
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		back := newShelf(gpu)
		if err := back.restore(data); err != nil {
			t.Fatalf("cannot read what was written: %v", err)
		}
		if diff := cmp.Diff(sh.servedCopy(), back.servedCopy(), cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	})
}

// TestForgetting: only pods that are nowhere are forgotten.
func TestForgetting(t *testing.T) {
	sh := newShelf(gpu)
	now := epoch.Add(time.Hour)
	serve := func(n int, at time.Time) {
		p := testPod(n, asks("main", 1))
		sh.serve(&podfinder.Asker{Pod: p, Container: &p.Containers[0]}, gpus(n), at)
	}
	serve(1, epoch)                   // on the node
	serve(2, epoch)                   // in kubelet's record
	serve(3, epoch)                   // nowhere
	serve(4, now.Add(-5*time.Minute)) // nowhere, but young
	serve(5, now.Add(-2*forgetAge))   // nowhere
	sh.gone["uid-p5"], sh.dirty = true, false
	sh.forget(podfinder.ByPod{"uid-p2": {"main": gpus(2)}}, []*podfinder.Pod{testPod(1)}, now)
	for n, want := range map[types.UID]bool{"uid-p1": true, "uid-p2": true, "uid-p3": false, "uid-p4": true, "uid-p5": false} {
		if got := sh.served[n] != nil; got != want {
			t.Errorf("%s is kept: %v, want %v", n, got, want)
		}
	}
	if sh.gone["uid-p5"] || !sh.dirty {
		t.Errorf("gone %v, dirty %v; want the pod forgotten and the file written", sh.gone, sh.dirty)
	}
}

// TestLearn: kubelet's record is believed.
func TestLearn(t *testing.T) {
	sh := newShelf(gpu)
	now := epoch.Add(time.Hour)
	wrong, lost := testPod(1, asks("main", 1)), testPod(2, asks("main", 1))
	sh.serve(&podfinder.Asker{Pod: wrong, Container: &wrong.Containers[0]}, gpus(3), epoch) // a wrong guess: it was p9
	sh.serve(&podfinder.Asker{Pod: lost, Container: &lost.Containers[0]}, gpus(5), epoch)   // kubelet lost it
	young := testPod(3, asks("main", 1))
	sh.serve(&podfinder.Asker{Pod: young, Container: &young.Containers[0]}, gpus(6), now) // not written yet
	sh.learn(podfinder.ByPod{"uid-p9": {"main": gpus(3)}}, []*podfinder.Pod{testPod(9)}, now)
	want := map[types.UID]map[string]podfinder.Served{
		"uid-p1": {}, "uid-p2": {"main": {IDs: gpus(5), At: epoch}}, "uid-p3": {"main": {IDs: gpus(6), At: now}}, "uid-p9": {"main": {IDs: gpus(3)}},
	}
	if diff := cmp.Diff(want, sh.servedCopy()); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	if p := sh.served["uid-p9"]; p.name != "p9" {
		t.Errorf("the pod's name is %q, want p9", p.name)
	}
	before := sh.servedCopy()
	sh.learn(nil, nil, now)
	if diff := cmp.Diff(before, sh.servedCopy()); diff != "" {
		t.Errorf("learnt from a checkpoint that cannot be read:\n%s", diff)
	}
}

// TestUnknownFieldsInFile: fields that the agent does not know are ignored.
func TestUnknownFieldsInFile(t *testing.T) {
	const text = `{"version":1,"kind":"served","resource":"nvidia.com/gpu","pods":[{"uid":"u","labels":{"a":"b"},"namespace":"ns","name":"p",` +
		`"containers":[{"name":"main","ids":["GPU-1"],"at":"2026-01-01T00:00:00Z","numa":[0]}]}]}`
	sh := newShelf(gpu)
	if err := sh.restore([]byte(text)); err != nil {
		t.Fatal(err)
	}
	want := map[types.UID]map[string]podfinder.Served{"u": {"main": {IDs: []string{"GPU-1"}, At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}}}
	if diff := cmp.Diff(want, sh.servedCopy()); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
}
