// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"sync"
)

// tailBytes is how much of the logs is kept to be shown after a failure: some fifty lines.
const tailBytes = 16 << 10

// tail is a writer that remembers the end of what was written, and passes all
// of it on to a file if there is one.
type tail struct {
	file io.Writer

	mu  sync.Mutex
	end []byte // guarded by mu
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	if n := len(t.end); n > 2*tailBytes {
		t.end = append(t.end[:0], t.end[n-tailBytes:]...)
	}
	if t.file != nil {
		return t.file.Write(p) //nolint:wrapcheck // an io.Writer
	}
	return len(p), nil
}

// last returns the end of the logs, from the start of a line.
func (t *tail) last() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := bytes.Clone(t.end)
	if len(out) > tailBytes {
		out = out[len(out)-tailBytes:]
		if i := bytes.IndexByte(out, '\n'); i >= 0 {
			out = out[i+1:]
		}
	}
	return out
}
