// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

const (
	// publishInterval is the time between checks whether the process leads.
	publishInterval = time.Second
	// publishAgain is the time after which unchanged profiles are written again: another client may have
	// changed them.
	publishAgain = 5 * time.Minute
)

// ProfileSource is the scheduler whose profiles and Lease are published.
type ProfileSource interface {
	Profiles() []diagnosis.Profile
	LeaderLease() diagnosis.LeaderLease
	MayLead() bool
}

// EndpointSource returns the address and certificate of this process's endpoint; nil: none.
type EndpointSource func() *diagnosis.Endpoint

// ProfilePublisher writes the profiles of the scheduler that leads, its Lease and its endpoint into the
// ConfigMap diagnosis.ProfilesName. The commands and the web view use it to report the scheduler's choice
// and whether one leads, and to send it queries. It runs in every process: the one that schedules need
// not be the one that leads the reporters. A late write of a former leader is overwritten by the next
// leader, publishAgain later at most.
type ProfilePublisher struct {
	source    ProfileSource
	endpoint  EndpointSource
	client    kubernetes.Interface
	namespace string
	name      string // of the process
	clock     clock.WithTicker

	told   string    // last written text; empty: none in this term
	at     time.Time // time of that write
	logged time.Time // time of the last logged failure
}

// NewProfilePublisher returns a ProfilePublisher that writes into a namespace; name is the process's.
func NewProfilePublisher(source ProfileSource, endpoint EndpointSource, client kubernetes.Interface, namespace, name string, clk clock.WithTicker) *ProfilePublisher {
	return &ProfilePublisher{source: source, endpoint: endpoint, client: client, namespace: namespace, name: name, clock: clk}
}

// Run publishes until ctx ends.
func (p *ProfilePublisher) Run(ctx context.Context) {
	ticker := p.clock.NewTicker(publishInterval)
	defer ticker.Stop()
	for {
		p.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// look writes the profiles if this process leads and they differ from the last written ones.
func (p *ProfilePublisher) look(ctx context.Context) {
	if !p.source.MayLead() {
		p.told = ""
		return
	}
	profiles := p.source.Profiles()
	if len(profiles) == 0 {
		return // the plugins are being made
	}
	lease := p.source.LeaderLease()
	text, err := json.Marshal(diagnosis.Profiles{
		Version: diagnosis.ProfilesVersion, Scheduler: p.name, Release: release.Version(), Profiles: profiles, LeaderLease: &lease, Debug: p.endpoint(),
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Writing the profiles as JSON failed")
		return
	}
	now := p.clock.Now()
	if string(text) == p.told && now.Sub(p.at) < publishAgain {
		return
	}
	if err := p.write(ctx, string(text)); err != nil {
		if ctx.Err() == nil && (p.logged.IsZero() || now.Sub(p.logged) >= publishAgain) { // not on every failure
			klog.FromContext(ctx).Error(err, "Publishing the profiles failed; nvtopo explain and the web view take the shipped profile", "configMap", klog.KRef(p.namespace, diagnosis.ProfilesName))
			p.logged = now
		}
		p.told = ""
		return
	}
	p.told, p.at = string(text), now
}

// write replaces the one value. The ConfigMap is part of the manifests, so the scheduler needs no right
// to create one.
func (p *ProfilePublisher) write(ctx context.Context, text string) error {
	body, err := json.Marshal(map[string]any{"data": map[string]string{diagnosis.ProfilesKey: text}})
	if err != nil {
		return err
	}
	_, err = p.client.CoreV1().ConfigMaps(p.namespace).
		Patch(ctx, diagnosis.ProfilesName, types.MergePatchType, body, metav1.PatchOptions{FieldManager: FieldManager})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no ConfigMap %s in namespace %s: apply the manifests of this release", diagnosis.ProfilesName, p.namespace)
	}
	return err
}
