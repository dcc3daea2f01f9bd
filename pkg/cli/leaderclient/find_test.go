// SPDX-License-Identifier: Apache-2.0

package leaderclient

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

const system = "system"

var now = time.Unix(1_700_000_000, 0)

// profiles is a ConfigMap as a scheduler publishes it.
func profiles(t *testing.T, p *diagnosis.Profiles) *v1.ConfigMap {
	t.Helper()
	p.Version, p.Scheduler, p.Release = diagnosis.ProfilesVersion, "pod-1", "v1"
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: diagnosis.ProfilesName}, Data: map[string]string{diagnosis.ProfilesKey: string(text)}}
}

func lease(holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "elected"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, RenewTime: new(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: new(int32(15)),
		},
	}
}

// TestFind: the published profiles, the Lease and the pod give the leader's address; an object that is
// missing, or may not be read, is named with the next step.
func TestFind(t *testing.T) {
	endpoint := diagnosis.Endpoint{Address: "127.0.0.1:10270", CertificateSHA256: "ab"}
	elected := &diagnosis.LeaderLease{Namespace: system, Name: "elected"}
	answers := func() *v1.ConfigMap { return profiles(t, &diagnosis.Profiles{LeaderLease: elected, Debug: &endpoint}) }
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "pod-1"}}
	for name, tc := range map[string]struct {
		objects   []runtime.Object
		forbidden string // a resource
		want      Leader
		wantErr   []string
	}{
		"a pod leads":        {objects: []runtime.Object{answers(), lease("pod-1_x", now), pod}, want: Leader{endpoint, system, "pod-1", true}},
		"a process leads":    {objects: []runtime.Object{answers(), lease("pod-1_x", now)}, want: Leader{endpoint, system, "pod-1", false}},
		"nobody is elected":  {objects: []runtime.Object{profiles(t, &diagnosis.Profiles{LeaderLease: &diagnosis.LeaderLease{}, Debug: &endpoint}), pod}, want: Leader{endpoint, system, "pod-1", true}},
		"no ConfigMap":       {wantErr: []string{"ConfigMap system/nvtopo-scheduler-profiles", "nvtopo is not installed"}},
		"an empty ConfigMap": {objects: []runtime.Object{&v1.ConfigMap{ObjectMeta: answers().ObjectMeta}}, wantErr: []string{"no scheduler has led yet", "kubectl -n system get deploy,pods"}},
		"a broken ConfigMap": {
			objects: []runtime.Object{&v1.ConfigMap{ObjectMeta: answers().ObjectMeta, Data: map[string]string{diagnosis.ProfilesKey: "{"}}},
			wantErr: []string{"namespace system: ConfigMap nvtopo-scheduler-profiles: data[profiles.json]"},
		},
		"no Lease":          {objects: []runtime.Object{answers()}, wantErr: []string{"there is no Lease system/elected", "kubectl -n system get deploy,pods"}},
		"an old Lease":      {objects: []runtime.Object{answers(), lease("pod-1_x", now.Add(-time.Hour))}, wantErr: []string{"no scheduler leads: Lease system/elected was last renewed at 2023-11-14T21:13:20Z", "kubectl -n system get deploy,pods"}},
		"nobody leads now":  {objects: []runtime.Object{answers(), lease("", now)}, wantErr: []string{"no scheduler leads: Lease system/elected has no holder", "kubectl -n system get deploy,pods"}},
		"another one leads": {objects: []runtime.Object{answers(), lease("pod-2_x", now)}, wantErr: []string{`scheduler "pod-2" holds Lease system/elected, and "pod-1" was the last to publish`, "ask again in a minute"}},
		"it answers nobody": {objects: []runtime.Object{profiles(t, &diagnosis.Profiles{LeaderLease: elected}), lease("pod-1_x", now)}, wantErr: []string{"scheduler pod-1 (release v1) answers nobody: set debugAddress"}},
		"no right to profiles": {forbidden: "configmaps", wantErr: []string{
			"ConfigMap system/nvtopo-scheduler-profiles: ", "forbidden", "kubectl -n system create rolebinding NAME --role=nvtopo-what-if --user=USER",
		}},
		"no right to the Lease": {objects: []runtime.Object{answers()}, forbidden: "leases", wantErr: []string{"Lease system/elected: ", "forbidden", "Role system/nvtopo-what-if has the Lease of the shipped configuration alone"}},
		"no right to the pod": {
			objects: []runtime.Object{answers(), lease("pod-1_x", now)}, forbidden: "pods",
			wantErr: []string{"pod system/pod-1: ", "forbidden", "--role=nvtopo-what-if"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tc.objects...)
			if tc.forbidden != "" {
				client.PrependReactor("get", tc.forbidden, func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: tc.forbidden}, "x", nil)
				})
			}
			got, err := Find(t.Context(), client, system, now)
			if len(tc.wantErr) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(&tc.want, got); diff != "" {
					t.Errorf("leader (-want +got):\n%s", diff)
				}
				return
			}
			for _, want := range tc.wantErr {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}
