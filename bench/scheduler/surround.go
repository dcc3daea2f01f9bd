// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/manifests"
)

// surround starts what goes on around a cell; stop ends what was started, also after
// an error.
func (c *cluster) surround(ctx context.Context, o *options, profile string, out *Cell) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, f := range slices.Backward(stops) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if !o.hostile() {
		return stop, nil
	}
	if strings.HasPrefix(profile, profileUnlimited) {
		stops = append(stops, func() error { return c.InstallManifests(ctx) })
		if err := c.removePriorityLevels(ctx); err != nil {
			return stop, err
		}
	}
	if isHostile(profile) {
		a, err := c.startAttack(ctx, o.Hostile, o.Writes)
		if err != nil {
			return stop, fmt.Errorf("turn %d nodes hostile: %w", o.Hostile, err)
		}
		stops = append(stops, func() (err error) {
			out.HostileWrites, err = a.stop(ctx)
			out.HostileRefused = a.refused.Load()
			return err
		})
	}
	h, err := c.startHeartbeats(ctx, o.Hostile, o.Renewals)
	if err != nil {
		return stop, err
	}
	stops = append(stops, func() error { return h.stop(ctx, c, out) })
	return stop, nil
}

// removePriorityLevels takes the project's flow control away.
func (c *cluster) removePriorityLevels(ctx context.Context) error {
	schemas, levels, err := manifests.FlowControl()
	if err != nil {
		return err // says what it was about
	}
	for _, s := range schemas {
		if err := c.kube.FlowcontrolV1().FlowSchemas().Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("remove FlowSchema %s: %w", s.Name, err)
		}
	}
	for _, l := range levels {
		if err := c.kube.FlowcontrolV1().PriorityLevelConfigurations().Delete(ctx, l.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("remove PriorityLevelConfiguration %s: %w", l.Name, err)
		}
	}
	return nil
}
