// SPDX-License-Identifier: Apache-2.0

package leaderclient

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

const (
	// Account is the ServiceAccount, in the scheduler's namespace, whose tokens are sent to the scheduler.
	Account = "nvtopo-what-if"
	// Role is the shipped Role, in that namespace, with all rights that Find and Connect need.
	Role = "nvtopo-what-if"
)

// Leader is the leading scheduler process with its endpoint.
type Leader struct {
	diagnosis.Endpoint

	Namespace string
	Process   string // its host's name, or its pod's
	InPod     bool
}

// Find returns the scheduler that leads in a namespace, and its endpoint. An error names the object that
// is missing, or may not be read, and the remedy.
func Find(ctx context.Context, kube kubernetes.Interface, namespace string, now time.Time) (*Leader, error) {
	p, err := published(ctx, kube, namespace)
	if err != nil {
		return nil, err
	}
	if err := leads(ctx, kube, p, namespace, now); err != nil {
		return nil, err
	}
	if p.Debug == nil {
		return nil, fmt.Errorf("scheduler %s (release %s) answers nobody: set debugAddress in the arguments of TopologyAware and NUMAAffinity, as the shipped configuration does, or install this release", p.Scheduler, p.Release)
	}
	l := &Leader{Endpoint: *p.Debug, Namespace: namespace, Process: p.Scheduler}
	switch _, err := kube.CoreV1().Pods(namespace).Get(ctx, p.Scheduler, metav1.GetOptions{}); {
	case err == nil:
		l.InPod = true
	case !apierrors.IsNotFound(err): // a process on some host has no pod
		return nil, refused(err, "pod", namespace, p.Scheduler)
	}
	return l, nil
}

// published reads the profiles that the scheduler published.
func published(ctx context.Context, kube kubernetes.Interface, namespace string) (*diagnosis.Profiles, error) {
	c, err := kube.CoreV1().ConfigMaps(namespace).Get(ctx, diagnosis.ProfilesName, metav1.GetOptions{})
	if err != nil {
		return nil, missing(refused(err, "ConfigMap", namespace, diagnosis.ProfilesName))
	}
	p, err := diagnosis.ParseProfiles(c.Data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("namespace %s: %w", namespace, err)
	case p == nil:
		shipped := diagnosis.LeaderLease{Namespace: namespace}
		return nil, fmt.Errorf("ConfigMap %s/%s is empty: no scheduler has led yet; %s", namespace, diagnosis.ProfilesName, shipped.NextStep())
	}
	return p, nil
}

// handover is the longest time a scheduler takes to lead after another one released its Lease.
const handover = 15 * time.Second

// leads returns an error unless the scheduler that published is the leader.
func leads(ctx context.Context, kube kubernetes.Interface, p *diagnosis.Profiles, namespace string, now time.Time) error {
	of := p.LeaderLease
	if of == nil || of.Name == "" {
		return nil // it is not elected
	}
	lease, err := kube.CoordinationV1().Leases(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("no scheduler leads: there is no Lease %s; %s", of, of.NextStep())
	}
	if apierrors.IsForbidden(err) && *of != (diagnosis.LeaderLease{Namespace: namespace, Name: diagnosis.ShippedLease}) {
		return fmt.Errorf("read Lease %s: %w; Role %s/%s has the Lease of the shipped configuration alone: an administrator lets USER get this one", of, err, namespace, Role)
	}
	if err != nil {
		return refused(err, "Lease", of.Namespace, of.Name)
	}
	election := diagnosis.Election{Published: p, Leases: []coordinationv1.Lease{*lease}, Now: now}
	if _, why, _ := election.NoLeader(); why != "" {
		if at := lease.Spec.RenewTime; at != nil && now.Sub(at.Time) < handover {
			why += "; another scheduler may take over: ask again in 15 seconds"
		}
		return fmt.Errorf("%s; %s", why, of.NextStep())
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity // host's name, "_" and a UUID, as kube-scheduler makes it
		if i := strings.LastIndexByte(holder, '_'); i >= 0 {
			holder = holder[:i]
		}
	}
	if holder != p.Scheduler {
		return fmt.Errorf("scheduler %q holds Lease %s, and %q was the last to publish where it answers: another one is about to lead, ask again in a minute", holder, of, p.Scheduler)
	}
	return nil
}

// refused adds the object's name to an error, and for a missing right how to grant it.
func refused(err error, kind, namespace, name string) error {
	err = fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; an administrator grants what is needed: kubectl -n %s create rolebinding NAME --role=%s --user=USER", err, namespace, Role)
	}
	return err
}

// missing adds the remedy to an error about a missing object of the manifests.
func missing(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w; nvtopo is not installed, or its manifests are of another release: apply those of this one", err)
	}
	return err
}
