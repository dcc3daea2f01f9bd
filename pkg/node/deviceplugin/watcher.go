// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// blindPoll limits each wait while a directory cannot be watched, usually because it does not exist yet.
const blindPoll = 200 * time.Millisecond

// Watcher reports when one of the files appears or disappears. It only saves time: polling finds the same
// changes without it.
type Watcher struct {
	files  []string
	fs     *fsnotify.Watcher // nil if the system has none
	blind  bool              // a directory is not watched
	logger klog.Logger
}

// NewWatcher makes a watcher for the files. Close it when done.
func NewWatcher(logger klog.Logger, files ...string) *Watcher {
	w := &Watcher{files: files, logger: logger}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Error(err, "No file notifications; checking the sockets periodically", "period", blindPoll)
		return w
	}
	w.fs = fs
	return w
}

// Refresh watches the directories that exist now. It watches a replaced directory again, because the
// kernel treats it as a different one.
func (w *Watcher) Refresh() {
	w.blind = w.fs == nil
	if w.blind {
		return
	}
	for _, f := range w.files {
		if err := w.fs.Add(filepath.Dir(f)); err != nil {
			w.blind = true
			w.logger.V(4).Info("Directory cannot be watched yet", "dir", filepath.Dir(f), "err", err)
		}
	}
}

// Wait returns when ctx ends, after delay, when woken, or when one of the files
// changed. It reports whether a file changed.
func (w *Watcher) Wait(ctx context.Context, clk clock.WithTicker, delay time.Duration, wake <-chan struct{}) bool {
	if w.blind {
		delay = min(delay, blindPoll)
	}
	timer := clk.NewTimer(delay)
	defer timer.Stop()
	var events chan fsnotify.Event
	var errs chan error
	if w.fs != nil {
		events, errs = w.fs.Events, w.fs.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C():
			return false
		case <-wake:
			return false
		case event := <-events:
			if slices.Contains(w.files, event.Name) {
				return true
			}
		case err := <-errs:
			w.logger.V(2).Info("File notifications were lost", "err", err)
			return true
		}
	}
}

// Close ends the watch.
func (w *Watcher) Close() {
	if w.fs != nil {
		_ = w.fs.Close() // its error does not matter any more
	}
}
