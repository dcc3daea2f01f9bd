// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/release"
)

// previousAllocation is the annotation as the previous release reads it: a field
// that is not here makes it refuse the whole. A field that is added to Allocation
// goes in here when the release that reads it first is the previous one.
type previousAllocation struct {
	Version     int                           `json:"version"`
	Node        string                        `json:"node"`
	PodUID      types.UID                     `json:"podUID"`
	Assumed     time.Time                     `json:"assumed"`
	Enforced    bool                          `json:"enforced"`
	Unconfirmed bool                          `json:"unconfirmed,omitempty"`
	NUMANodes   []int                         `json:"numaNodes,omitempty"`
	CPUSet      string                        `json:"cpuset,omitempty"`
	Containers  []previousContainerAllocation `json:"containers,omitempty"`
}

type previousContainerAllocation struct {
	Name      string   `json:"name"`
	Resource  string   `json:"resource"`
	Init      bool     `json:"init,omitempty"`
	GPUs      []string `json:"gpus"`
	NUMANodes []int    `json:"numaNodes,omitempty"`
}

// fill sets every exported field of a struct, so that each is written.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Field(i)
		if !v.Type().Field(i).IsExported() || !f.IsZero() {
			continue
		}
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("text")
		case reflect.Int, reflect.Int32, reflect.Int64:
			f.SetInt(1)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Map:
			m := reflect.MakeMap(f.Type())
			m.SetMapIndex(reflect.New(f.Type().Key()).Elem(), reflect.New(f.Type().Elem()).Elem())
			f.Set(m)
		default:
			t.Fatalf("nothing to fill %s with", v.Type().Field(i).Name)
		}
	}
}

func TestThePreviousReleaseReadsWhatIsWritten(t *testing.T) {
	a := sample()
	fill(t, reflect.ValueOf(a).Elem())
	fill(t, reflect.ValueOf(&a.Containers[0]).Elem())
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	var old previousAllocation
	if err := dec.Decode(&old); err != nil {
		t.Fatalf("after a roll-back nobody could read %s: %v", text, err)
	}
	if old.Version != 1 || old.PodUID != a.PodUID || !slices.Equal(old.Containers[0].GPUs, a.Containers[0].GPUs) {
		t.Errorf("it reads %+v, written was %s", old, text)
	}
}

// later returns a pod's annotation as a later release may write it.
func later(t *testing.T, pod *v1.Pod, replace ...string) *v1.Pod {
	t.Helper()
	p := pod.DeepCopy()
	text := strings.NewReplacer(replace...).Replace(p.Annotations[AllocationKey])
	if text == p.Annotations[AllocationKey] {
		t.Fatalf("nothing of %s to replace in %s", replace, text)
	}
	p.Annotations[AllocationKey] = text
	return p
}

func TestAnnotationsOfALaterRelease(t *testing.T) {
	tests := map[string]struct {
		replace     []string
		wantUsed    nvtopo.Mask
		wantCounted int
		wantNewer   bool
	}{
		"a further field is ignored": {
			replace: []string{`"version":1`, `"version":1,"partition":{"kind":"x"},"reason":["a"]`}, wantUsed: nvtopo.MaskOf(2, 3),
		},
		"so is one of a container": {
			replace: []string{`"name":"main"`, `"name":"main","nics":["mlx5_0"]`}, wantUsed: nvtopo.MaskOf(2, 3),
		},
		"what it does not name in a field we know is counted": {
			replace: []string{`"containers":[`, `"groups":[`}, wantCounted: 2,
		},
		"of another version nothing is believed, and the GPUs are counted": {
			replace: []string{`"version":1`, `"version":2`}, wantCounted: 2, wantNewer: true,
		},
		"nor of one whose fields have other types": {
			replace: []string{`"version":1`, `"version":2`, `"containers":[`, `"containers":{},"was":[`}, wantCounted: 2, wantNewer: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "dgx-h100")
			var reported []error
			r.onMalformed = func(_ *v1.Pod, err error) { reported = append(reported, err) }
			pod := later(t, on(t, r.State, gpuPod("p", 2), "n", 2, 3), tc.replace...)
			r.pods = fixedStore{pod.UID: pod}
			info, lister := r.view(t, pod)
			u := r.usage(r.cells.get("n"), r.Node("n"), info, lister)
			if u.used[0] != tc.wantUsed || u.counted[0] != tc.wantCounted {
				t.Errorf("used %v and %d counted, want %v and %d", u.used[0], u.counted[0], tc.wantUsed, tc.wantCounted)
			}
			if got := len(reported) == 1 && errors.Is(reported[0], ErrNewerVersion); got != tc.wantNewer {
				t.Errorf("reported %v, want an ErrNewerVersion: %v", reported, tc.wantNewer)
			}
		})
	}
}

func TestRewritingDropsWhatIsNotKnown(t *testing.T) {
	text, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	a, err := ParseAllocation(strings.Replace(text, `"version":1`, `"version":1,"ofTheOldChoice":true`, 1))
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again != text {
		t.Errorf("written anew: %s, want %s", again, text)
	}
}

func TestOtherReleasesAreToldOfOnce(t *testing.T) {
	at := func(name, level string) *coordinationv1.Lease {
		l := lease(name, time.Unix(0, 0), time.Minute)
		if level != "" {
			l.Annotations = map[string]string{release.LevelKey: level}
		}
		return l
	}
	same, next := strconv.Itoa(release.Level), strconv.Itoa(release.Level+1)
	var r releases
	for i, step := range []struct {
		lease *coordinationv1.Lease
		want  bool
	}{
		{at("exporter-n1", same), false},
		{at("exporter-n1", next), true},
		{at("agent-n2", next), false}, // one of them was enough
		{at("agent-n2", "x"), true},
		{at("nvtopo-scheduler", "99"), false}, // no program of a node
		{at("agent-n3", "99"), true},
	} {
		if _, got := r.other(step.lease); got != step.want {
			t.Errorf("step %d, %s at %v: told %v, want %v", i, step.lease.Name, step.lease.Annotations, got, step.want)
		}
	}
	for i := range 100 {
		r.other(at("agent-n4", strconv.Itoa(1000+i)))
	}
	if len(r.seen) > maxReleases {
		t.Errorf("%d levels are remembered, at most %d should be", len(r.seen), maxReleases)
	}
}
