// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"sync"
)

// tailSize is enough for the last words of a process that failed.
const tailSize = 8 << 10

// tail keeps the end of what a child prints, to show it when something fails.
// file, if set, gets all of it.
type tail struct {
	file io.Writer

	mu   sync.Mutex
	text []byte // guarded by mu
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailSize; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	if t.file == nil {
		return len(p), nil
	}
	return t.file.Write(p) //nolint:wrapcheck // an io.Writer's error is its own
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
