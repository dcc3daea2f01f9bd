// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"k8s.io/klog/v2"
)

// watchRecord triggers a round whenever kubelet writes its record, until ctx ends. If the watch fails,
// rounds continue at the interval, and the watch is retried.
func (v *Verifier) watchRecord(ctx context.Context) {
	for failed := false; ; {
		err := v.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if !failed {
			klog.FromContext(ctx).Error(err, "Cannot watch kubelet's record; looking at it from time to time instead", "interval", v.cfg.Interval)
		}
		failed = true
		if !v.sleep(ctx, v.cfg.Interval) {
			return
		}
	}
}

// watchOnce watches until the watch breaks. It watches the directory, because kubelet
// replaces the file by renaming another.
func (v *Verifier) watchOnce(ctx context.Context) error {
	dir := filepath.Dir(v.cfg.CheckpointPath)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	defer func() { _ = w.Close() }() // nothing is left to lose
	if err := w.Add(dir); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	v.Trigger() // the file may have changed before the watch began
	name := filepath.Base(v.cfg.CheckpointPath)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-w.Errors:
			return fmt.Errorf("watch %s: %w", dir, err)
		case ev, ok := <-w.Events:
			if !ok || ev.Name == dir && ev.Has(fsnotify.Remove|fsnotify.Rename) {
				return fmt.Errorf("watch %s: the folder was removed", dir)
			}
			if filepath.Base(ev.Name) == name && !ev.Has(fsnotify.Chmod) {
				v.Trigger()
			}
		}
	}
}
