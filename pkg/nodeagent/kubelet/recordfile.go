// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrStalled says that the file system does not answer, so that nothing is known of the
// record.
var ErrStalled = errors.New("the file system does not answer")

// RecordFile reads the checkpoint, anew only where kubelet has replaced it. A file
// system that does not answer keeps one goroutine waiting, which nothing can end, and
// no caller for longer than it wants to wait. It is safe for concurrent use.
type RecordFile struct {
	path  string
	clock clock.Clock

	mu      sync.Mutex
	started int      // looks so far; guarded by mu
	current *looking // the one under way; nil if there is none; guarded by mu

	// Of the look under way, and between two looks of nobody.
	info fs.FileInfo // of the file that was read; nil before the first
	last Recorded
	err  error
}

// Recorded is what one version of the file says, ordered as by ParseCheckpoint. It is
// shared and read only; the same version is the same pointer.
type Recorded = *[]Record

// looking is one look at the file.
type looking struct {
	number  int
	began   time.Time
	done    chan struct{} // closed at its end, when the rest is set
	records Recorded
	err     error
}

// NewRecordFile returns the file at path. It reads nothing yet.
func NewRecordFile(path string, clk clock.Clock) *RecordFile {
	return &RecordFile{path: path, clock: clk}
}

// Read returns what the file says now: it was looked at after the call, since kubelet
// may have replaced it just before. It waits for patience at most, and not at all for
// a look that others have waited for in vain; then the error is ErrStalled. That there
// is no file stays visible as fs.ErrNotExist.
func (f *RecordFile) Read(ctx context.Context, patience time.Duration) (Recorded, error) {
	timer := f.clock.NewTimer(patience)
	defer timer.Stop()
	for first := 0; ; {
		l, next := f.look()
		if first == 0 {
			first = next
		}
		if f.clock.Since(l.began) >= patience {
			return nil, fmt.Errorf("%s: %w", f.path, ErrStalled)
		}
		select {
		case <-l.done:
			if l.number >= first {
				return l.records, l.err
			}
		case <-timer.C():
			return nil, fmt.Errorf("%s: %w", f.path, ErrStalled)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look returns the look under way, a new one if there is none, and the number of the
// first that begins after the call.
func (f *RecordFile) look() (l *looking, next int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next = f.started + 1
	if f.current == nil {
		f.started++
		f.current = &looking{number: f.started, began: f.clock.Now(), done: make(chan struct{})}
		go f.run(f.current)
	}
	return f.current, next
}

// run ends with the file system's answer: a read of a file knows no context.
func (f *RecordFile) run(l *looking) {
	f.refresh()
	l.records, l.err = f.last, f.err
	f.mu.Lock()
	f.current = nil
	f.mu.Unlock()
	close(l.done)
}

// refresh reads the file if it is another than before. Kubelet replaces it, and a time
// alone does not tell two apart: it counts in ticks of some milliseconds.
func (f *RecordFile) refresh() {
	info, err := os.Stat(f.path)
	if err != nil {
		f.info, f.last, f.err = nil, nil, fmt.Errorf("kubelet's checkpoint: %w", err)
		return
	}
	if f.info != nil && os.SameFile(info, f.info) && info.Size() == f.info.Size() && info.ModTime().Equal(f.info.ModTime()) {
		return
	}
	f.info, f.last = info, nil
	var records []Record
	if records, f.err = ReadCheckpoint(f.path); f.err == nil {
		f.last = &records
	}
}
