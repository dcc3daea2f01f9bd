// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bytes"
	"io"
	"sync"
)

// tailBytes is how much of a log is kept to be shown after a failure: some fifty lines.
const tailBytes = 16 << 10

// Tail is a writer that keeps the end of its input, to show it after a failure, and writes all of it to
// File if that is set. Its methods may be used concurrently.
type Tail struct {
	File io.Writer

	mu  sync.Mutex
	end []byte // guarded by mu
}

// Write never fails unless File does.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	if n := len(t.end); n > 2*tailBytes {
		t.end = append(t.end[:0], t.end[n-tailBytes:]...)
	}
	if t.File != nil {
		return t.File.Write(p) // an io.Writer
	}
	return len(p), nil
}

// String returns the end of the input, from the start of a line.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.end
	if len(out) > tailBytes {
		out = out[len(out)-tailBytes:]
		if i := bytes.IndexByte(out, '\n'); i >= 0 {
			out = out[i+1:]
		}
	}
	return string(out)
}
