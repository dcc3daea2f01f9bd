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

// ErrStalled means that the file system does not respond, so the record is unknown.
var ErrStalled = errors.New("the file system does not answer")

// RecordFile reads the checkpoint, and rereads it only after kubelet replaced it. If the file system does
// not respond, a single goroutine keeps waiting, because its read cannot be interrupted. No caller waits
// longer than its limit. It is safe for concurrent use.
type RecordFile struct {
	path  string
	clock clock.Clock

	mu      sync.Mutex
	started int      // number of looks so far; guarded by mu
	current *looking // the look in progress, or nil; guarded by mu

	// Only the goroutine of the current look uses these.
	info fs.FileInfo // of the file that was read; nil before the first
	last Recorded
	err  error
}

// Recorded holds the records of one version of the file, ordered as by ParseCheckpoint. It is shared and
// must not be changed. The same version has the same pointer.
type Recorded = *[]Record

// looking is one look at the file.
type looking struct {
	number  int
	began   time.Time
	done    chan struct{} // closed at its end, after the other fields are set
	records Recorded
	err     error
}

// NewRecordFile returns a RecordFile for path. It reads nothing yet.
func NewRecordFile(path string, clk clock.Clock) *RecordFile {
	return &RecordFile{path: path, clock: clk}
}

// Read returns the file's records from a look that began after the call, since kubelet may have replaced
// the file just before. It waits at most patience. If an earlier look has already lasted that long, it
// returns ErrStalled at once. The error wraps fs.ErrNotExist if the file does not exist.
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

// look returns the look in progress, or starts one, and the number of the first look that begins after
// the call.
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

// run looks at the file and publishes the result. It ends only when the file system responds: reading a
// file takes no context.
func (f *RecordFile) run(l *looking) {
	f.refresh()
	l.records, l.err = f.last, f.err
	f.mu.Lock()
	f.current = nil
	f.mu.Unlock()
	close(l.done)
}

// refresh reads the file if it differs from the one read before. Kubelet replaces the file. A
// modification time alone does not distinguish two versions, because its resolution is some milliseconds.
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
