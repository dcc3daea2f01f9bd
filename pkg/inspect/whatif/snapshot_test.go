// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

const (
	header  = `{"kind":"nvtopo-snapshot","version":1,"at":"2026-01-02T03:04:05Z","config":"kind: KubeSchedulerConfiguration"}`
	onePod  = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"p"}}`
	oneNode = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`
)

func TestReadErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  string
	}{
		"an empty file":                {nil, "line 1: the snapshot ends in its middle"},
		"another file":                 {[]string{`{"kind":"List"}`}, `line 1: kind "List"`},
		"a field that is not known":    {[]string{`{"kind":"nvtopo-snapshot","versions":1}`}, "versions: there is no such field"},
		"a later version":              {[]string{strings.Replace(header, `"version":1`, `"version":2`, 1)}, "line 1: version 2"},
		"no moment":                    {[]string{strings.Replace(header, `"at":"2026-01-02T03:04:05Z",`, "", 1)}, "line 1: at: missing"},
		"no configuration":             {[]string{`{"kind":"nvtopo-snapshot","version":1,"at":"2026-01-02T03:04:05Z","config":""}`}, "line 1: config: missing"},
		"a kind that nobody reads":     {[]string{header, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`}, `line 2: apiVersion "v1", kind "Secret"`},
		"an object without a name":     {[]string{header, `{"apiVersion":"v1","kind":"Node","metadata":{}}`}, "line 2: Node: metadata.name: missing"},
		"a pod without a namespace":    {[]string{header, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`}, "line 2: Pod /p: metadata.namespace"},
		"a node in a namespace":        {[]string{header, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","namespace":"a"}}`}, "line 2: Node n: metadata.namespace"},
		"an object twice":              {[]string{header, onePod, oneNode, onePod}, "line 4: Pod a/p is there twice"},
		"no JSON":                      {[]string{header, "x"}, "line 2: want an object, in JSON"},
		"no end":                       {[]string{header, onePod}, "line 3: the snapshot ends in its middle"},
		"an end that misses an object": {[]string{header, onePod, `{"objects":2}`}, "line 3: objects: the snapshot has 1"},
		"more behind the end":          {[]string{header, `{"objects":0}`, onePod}, "line 3: the snapshot goes on behind its end"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(strings.NewReader(strings.Join(tc.lines, "\n")))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestRoundTrip: a written request is read back unchanged.
func TestRoundTrip(t *testing.T) {
	h := Header{At: time.Unix(1_700_000_000, 0).UTC(), Scheduler: "s", Config: "c\nd", FeatureGates: "A=true"}
	var out bytes.Buffer
	w, err := NewWriter(&out, h)
	if err != nil {
		t.Fatal(err)
	}
	pod := testobj.Pod("p").Namespace("a").UID("u").ResourceVersion("7").Obj()
	if err := w.Add(PodKind, pod); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	first := out.String()
	s, err := Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	h.Kind, h.Version = SnapshotKind, SnapshotVersion
	if diff := cmp.Diff(h, s.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if o := s.Objects[0]; o.Kind != PodKind || o.Namespace != "a" || o.Name != "p" || o.UID != "u" || o.ResourceVersion != "7" {
		t.Errorf("object %+v", o)
	}
	var again bytes.Buffer
	if err := s.Write(&again); err != nil {
		t.Fatal(err)
	}
	if again.String() != first {
		t.Errorf("written again it is\n%s, before\n%s", again.String(), first)
	}
}

// TestEssenceHidden: essence hides what runs.
func TestEssenceHidden(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i", Env: []v1.EnvVar{{Name: "TOKEN", Value: "secret"}}, Args: []string{"secret"}}}}}
	pod.Annotations = map[string]string{v1.LastAppliedConfigAnnotation: "secret", "a/b": "c"}
	before := pod.DeepCopy()
	var out bytes.Buffer
	w, err := NewWriter(&out, Header{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(PodKind, Essence(pod)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "secret") || !strings.Contains(text, `"a/b":"c"`) {
		t.Errorf("written: %s", text)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the pod was changed (-before +after):\n%s", diff)
	}
}

// TestEssenceKept: essence keeps what is read: of volumes and of status.
func TestEssenceKept(t *testing.T) {
	ended := metav1.NewTime(time.Unix(1_700_000_000, 0))
	pod := &v1.Pod{}
	pod.Spec.Volumes = []v1.Volume{
		{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		{Name: "own", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{}}}},
		{Name: "disk", VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: []string{"m"}, RBDPool: "p", RBDImage: "i", RadosUser: "secret", SecretRef: &v1.LocalObjectReference{Name: "secret"}}}},
		{Name: "hidden", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "secret"}}},
		{Name: "inline", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d", VolumeAttributes: map[string]string{"token": "secret"}}}},
	}
	pod.Status = v1.PodStatus{
		Phase: v1.PodRunning, Message: "secret", PodIP: "secret", NominatedNodeName: "n", StartTime: &ended, QOSClass: v1.PodQOSGuaranteed,
		Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/1 nodes"}, {Type: "example.com/ready", Status: v1.ConditionTrue, Message: "secret"},
		},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", ImageID: "secret", AllocatedResources: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: ended, Message: "secret"}},
		}},
	}
	want := &v1.Pod{}
	want.Spec.Containers, want.Spec.InitContainers = []v1.Container{}, []v1.Container{}
	want.Spec.Volumes = []v1.Volume{
		{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		{Name: "own", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
		{Name: "disk", VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: []string{"m"}, RBDPool: "p", RBDImage: "i"}}},
		{Name: "hidden"},
		{Name: "inline"},
	}
	want.Status = v1.PodStatus{
		Phase: v1.PodRunning, NominatedNodeName: "n", StartTime: &ended, QOSClass: v1.PodQOSGuaranteed,
		Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/1 nodes"}, {Type: "example.com/ready", Status: v1.ConditionTrue},
		},
		InitContainerStatuses: []v1.ContainerStatus{},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", AllocatedResources: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: ended}},
		}},
	}
	if diff := cmp.Diff(want, Essence(pod)); diff != "" {
		t.Errorf("essence (-want +got):\n%s", diff)
	}
	volume := &v1.PersistentVolume{}
	volume.Spec.CSI = &v1.CSIPersistentVolumeSource{
		Driver: "d", VolumeHandle: "h", VolumeAttributes: map[string]string{"token": "secret"}, NodePublishSecretRef: &v1.SecretReference{Name: "secret"},
	}
	wantVolume := &v1.PersistentVolume{}
	wantVolume.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
	if diff := cmp.Diff(any(wantVolume), Bare(volume)); diff != "" {
		t.Errorf("volume (-want +got):\n%s", diff)
	}
}

// FuzzRead: what is read is written and read again as the same.
func FuzzRead(f *testing.F) {
	f.Add([]byte(strings.Join([]string{header, onePod, oneNode, `{"objects":2}`}, "\n")))
	f.Add([]byte(header + "\n" + `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"p","annotations":{"nvtopo.dev/gang":"p,q"},"labels":{"x":"p"}},"spec":{"nodeName":"n","containers":[{"image":"n"}]}}` + "\n" + `{"objects":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := s.Write(&out); err != nil {
			t.Fatal(err)
		}
		again, err := Read(&out)
		if err != nil {
			t.Fatalf("written, it cannot be read: %v", err)
		}
		if diff := cmp.Diff(s, again, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Fatalf("written and read (-before +after):\n%s", diff)
		}
	})
}
