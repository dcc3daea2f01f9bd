// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// fakeProfiles is a scheduler with profiles, and the API server to which it publishes them.
type fakeProfiles struct {
	profiles []diagnosis.Profile
	leads    bool
	refuse   error
	endpoint *diagnosis.Endpoint
	wrote    []string
}

func (f *fakeProfiles) Profiles() []diagnosis.Profile { return f.profiles }
func (f *fakeProfiles) MayLead() bool                 { return f.leads }
func (f *fakeProfiles) LeaderLease() diagnosis.LeaderLease {
	return diagnosis.LeaderLease{Namespace: "system", Name: "elected"}
}

// TestProfilesArePublished: the leader publishes its profiles and its endpoint when it is elected, when
// they change, and every five minutes; a standby publishes nothing.
func TestProfilesArePublished(t *testing.T) {
	f := &fakeProfiles{profiles: []diagnosis.Profile{{Name: "a"}}}
	client := fake.NewClientset(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: diagnosis.ProfilesName}})
	client.PrependReactor("patch", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if f.refuse != nil {
			return true, nil, f.refuse
		}
		p, ok := a.(clienttesting.PatchAction)
		if !ok || p.GetNamespace() != "system" || p.GetName() != diagnosis.ProfilesName {
			return true, nil, fmt.Errorf("unexpected request %v", a)
		}
		var c v1.ConfigMap
		if err := json.Unmarshal(p.GetPatch(), &c); err != nil {
			return true, nil, err
		}
		got, err := diagnosis.ParseProfiles(c.Data)
		if err != nil {
			return true, nil, err
		}
		wrote := fmt.Sprintf("%s: %d of %s by %s", got.Scheduler, len(got.Profiles), got.Profiles[0].Name, got.LeaderLease)
		if got.Debug != nil {
			wrote += fmt.Sprintf(" at %s with %s", got.Debug.Address, got.Debug.CertificateSHA256)
		}
		f.wrote = append(f.wrote, wrote)
		return true, &c, nil
	})
	clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	p := NewProfilePublisher(f, func() *diagnosis.Endpoint { return f.endpoint }, client, "system", "pod-1", clk)
	steps := []struct {
		name string
		do   func()
		want []string
	}{
		{"a standby", func() {}, nil},
		{"it is elected", func() { f.leads = true }, []string{"pod-1: 1 of a by system/elected"}},
		{"nothing has changed", func() {}, nil},
		{"a profile is added", func() { f.profiles = append(f.profiles, diagnosis.Profile{Name: "b"}) }, []string{"pod-1: 2 of a by system/elected"}},
		{
			"it answers",
			func() { f.endpoint = &diagnosis.Endpoint{Address: "127.0.0.1:10270", CertificateSHA256: "ab"} },
			[]string{"pod-1: 2 of a by system/elected at 127.0.0.1:10270 with ab"},
		},
		{
			"its certificate is another one",
			func() { f.endpoint = &diagnosis.Endpoint{Address: "127.0.0.1:10270", CertificateSHA256: "cd"} },
			[]string{"pod-1: 2 of a by system/elected at 127.0.0.1:10270 with cd"},
		},
		{"it does not answer", func() { f.endpoint = nil }, []string{"pod-1: 2 of a by system/elected"}},
		{"after a while", func() { clk.Step(publishAgain) }, []string{"pod-1: 2 of a by system/elected"}},
		{"the API server refuses", func() { clk.Step(publishAgain); f.refuse = errors.New("down") }, nil},
		{"it answers again", func() { f.refuse = nil }, []string{"pod-1: 2 of a by system/elected"}},
		{"it loses its Lease", func() { f.leads = false }, nil},
		{"it is elected again", func() { f.leads = true }, []string{"pod-1: 2 of a by system/elected"}},
	}
	for _, s := range steps {
		f.wrote = nil
		s.do()
		p.look(context.Background())
		if diff := cmp.Diff(s.want, f.wrote); diff != "" {
			t.Errorf("%s: wrote (-want,+got):\n%s", s.name, diff)
		}
	}
}
