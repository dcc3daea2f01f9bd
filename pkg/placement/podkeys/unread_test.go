// SPDX-License-Identifier: Apache-2.0

package podkeys

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

type texts = map[string]string

func podWith(annotations, labels texts) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Annotations: annotations, Labels: labels}}
}

func TestMessage(t *testing.T) {
	const without = "; the pod is scheduled without it"
	tests := map[string]struct {
		notes, labels texts
		want          string
	}{
		"no keys at all":      {},
		"a key of users":      {notes: texts{"nvtopo.dev/min-link": "NV4"}},
		"those of a gang":     {notes: texts{"nvtopo.dev/gang": "g", "nvtopo.dev/gang-size": "4", "nvtopo.dev/required-topology": "rack"}},
		"what is written":     {notes: texts{"nvtopo.dev/allocation": "{}", "nvtopo.dev/gpu-ids.main": "", "nvtopo.dev/rank": "0", "nvtopo.dev/promised-gpu-model": "H100"}},
		"keys of others":      {notes: texts{"example.com/topology-polcy": "", "nvtopology.io/x": "", "pool.nvtopo.dev/tenant": "a"}, labels: texts{"app": "x", "pool.nvtopo.dev/pool": "p"}},
		"near without a gang": {notes: texts{"nvtopo.dev/near": "g"}},
		"a letter is missing": {
			notes: texts{"nvtopo.dev/topology-polcy": "restricted"},
			want:  "Annotation nvtopo.dev/topology-polcy is not known; nearest is nvtopo.dev/topology-policy" + without,
		},
		"a dash is missing": {
			notes: texts{"nvtopo.dev/segmentsize": "4"},
			want:  "Annotation nvtopo.dev/segmentsize is not known; nearest is nvtopo.dev/segment-size" + without,
		},
		"two letters are swapped": {
			notes: texts{"nvtopo.dev/gagn": "g"},
			want:  "Annotation nvtopo.dev/gagn is not known; nearest is nvtopo.dev/gang" + without,
		},
		"another domain": {
			notes: texts{"nvtopo.io/topology-policy": "restricted"},
			want:  "Annotation nvtopo.io/topology-policy is not known; nearest is nvtopo.dev/topology-policy" + without,
		},
		"nothing is near": {
			notes: texts{"nvtopo.dev/affinity-of-everything": "x"},
			want:  "Annotation nvtopo.dev/affinity-of-everything is not known" + without,
		},
		"a label for an annotation": {
			labels: texts{"nvtopo.dev/gang": "g"},
			want:   "Label nvtopo.dev/gang is not known; nearest is the annotation nvtopo.dev/gang" + without,
		},
		"the size of no gang": {
			notes: texts{"nvtopo.dev/gang-size": "4"},
			want:  "Annotation nvtopo.dev/gang-size is for members of gangs, and the pod is in none: it lacks nvtopo.dev/gang" + without,
		},
		"a wish of a PodGroup's member": {notes: texts{"nvtopo.dev/required-topology": "rack"}, labels: texts{"scheduling.x-k8s.io/pod-group": "g"}},
		"several": {
			notes:  texts{"nvtopo.dev/b": "", "nvtopo.dev/a": "", "nvtopo.dev/gang-sizee": "1"},
			labels: texts{"nvtopo.dev/c": "", "nvtopo.dev/d": ""},
			want: "Annotation nvtopo.dev/a is not known; annotation nvtopo.dev/b is not known; annotation nvtopo.dev/gang-sizee is not known; nearest is nvtopo.dev/gang-size; " +
				"label nvtopo.dev/c is not known; and 1 more; the pod is scheduled without them",
		},
		"a long domain": {
			notes: texts{"nvtopo." + strings.Repeat("x", 240) + "/a": ""},
			want:  "Annotation nvtopo." + strings.Repeat("x", 121) + "... is not known" + without,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Message(Unread(podWith(tc.notes, tc.labels)))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestKnownKeys: no key that a program of nvtopo reads or writes on pods is unread.
func TestKnownKeys(t *testing.T) {
	notes := texts{}
	for _, keys := range [][]string{podrequest.InputKeys(), gangrequest.InputKeys(), allocation.OutputKeys(), gangrequest.OutputKeys(), {podrequest.PromisedModelKey}} {
		for _, key := range keys {
			notes[key] = "x"
		}
	}
	if len(notes) < 30 {
		t.Fatalf("%d keys: this is no test", len(notes))
	}
	if got := Unread(podWith(notes, nil)); got != nil {
		t.Errorf("unread: %v", got)
	}
}

// TestCommonCase: a pod with keys of nvtopo costs no allocation.
func TestCommonCase(t *testing.T) {
	pod := podWith(texts{"nvtopo.dev/gang": "g", "nvtopo.dev/gang-size": "4", "a/b": "c"}, texts{"app": "x"})
	if n := testing.AllocsPerRun(100, func() { Unread(pod) }); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}

// slow is the distance by its definition.
func slow(a, b string) int {
	switch {
	case a == "" || b == "":
		return len(a) + len(b)
	case a[0] == b[0]:
		return slow(a[1:], b[1:])
	}
	d := 1 + min(slow(a[1:], b), slow(a, b[1:]), slow(a[1:], b[1:]))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		d = min(d, 1+slow(a[2:], b[2:]))
	}
	return d
}

func TestDistance(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	word := func() string {
		out := make([]byte, r.IntN(7))
		for i := range out {
			out[i] = "abc"[r.IntN(3)]
		}
		return string(out)
	}
	for range 2000 {
		a, b := word(), word()
		if got, want := distance(a, b), slow(a, b); got != want {
			t.Fatalf("from %q to %q: %d, want %d", a, b, got, want)
		}
	}
}

// TestNearestOfSlips: the nearest key to a user's key with one letter left out, doubled or swapped is that
// key, unless another is as near.
func TestNearestOfSlips(t *testing.T) {
	for _, key := range Inputs() {
		name := strings.TrimPrefix(key, Domain)
		for i := range name {
			slips := []string{name[:i] + name[i+1:], name[:i+1] + name[i:]}
			if i+1 < len(name) {
				slips = append(slips, name[:i]+name[i+1:i+2]+name[i:i+1]+name[i+2:])
			}
			for _, slip := range slips {
				got := nearest(Domain+slip, Inputs())
				if got == "" || distance(slip, strings.TrimPrefix(got, Domain)) > 1 {
					t.Errorf("%s: nearest to %s is %q", key, slip, got)
				}
			}
		}
	}
}
