// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	// LeaseName is the Lease that records until when all pods were seen.
	LeaseName = "nvtopo-pool-metering"
	// beat is the interval of its renewal, and the largest error of an estimated end while nothing but
	// this process failed.
	beat = 30 * time.Second
)

// heartbeat records until when all pods were seen. An open record of a pod that disappeared unobserved
// ends there.
type heartbeat struct {
	client    client.Client
	reader    client.Reader // not the cache: the Lease must be read up to date
	namespace string
	clock     clock.Clock
	// behind counts the open records that have no pod. While there are any, the Lease is not renewed:
	// they would end at a later time if this process died now.
	behind func(context.Context) (int, error)

	mu     sync.Mutex
	read   bool      // guarded by mu
	before time.Time // guarded by mu; renewal time before this process began
	last   time.Time // guarded by mu; last renewal by this process
}

// seenUntil returns the time until which an earlier process saw all pods; zero if there was none.
func (h *heartbeat) seenUntil(ctx context.Context) (time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.read {
		return h.before, nil
	}
	var lease coordinationv1.Lease
	err := h.reader.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: LeaseName}, &lease)
	if client.IgnoreNotFound(err) != nil {
		return time.Time{}, fmt.Errorf("read Lease %s/%s: %w", h.namespace, LeaseName, err)
	}
	if err == nil && lease.Spec.RenewTime != nil {
		h.before = lease.Spec.RenewTime.Time
	}
	h.read = true
	return h.before, nil
}

// Start renews the Lease until ctx ends. The manager runs it while it leads.
func (h *heartbeat) Start(ctx context.Context) error {
	for {
		if err := h.renew(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The Lease of metering was not renewed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.clock.After(beat):
		}
	}
}

func (h *heartbeat) renew(ctx context.Context) error {
	if _, err := h.seenUntil(ctx); err != nil {
		return err
	}
	now := h.clock.Now()
	if n, err := h.behind(ctx); err != nil || n > 0 {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: LeaseName}}
	patch := client.MergeFrom(lease.DeepCopy())
	seconds, holder, renewed := int32(beat/time.Second), names.FieldOwner, metav1.NewMicroTime(now)
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}
	err := h.client.Patch(ctx, lease, patch, client.FieldOwner(names.FieldOwner))
	if apierrors.IsNotFound(err) {
		err = h.client.Create(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("renew Lease %s/%s: %w", h.namespace, LeaseName, err)
	}
	h.mu.Lock()
	h.last = now
	h.mu.Unlock()
	return nil
}

// lastBeat returns the last renewal by this process; zero if it has not renewed the Lease yet.
func (h *heartbeat) lastBeat() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}
