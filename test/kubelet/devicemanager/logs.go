// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"io"
	"strings"
	"sync"
	"testing"

	"k8s.io/klog/v2"
)

// maxLogLines is the length of the log that a failed test shows.
const maxLogLines = 200

// logs keeps the log of kubelet and the agent for a failed test: both log with klog's global logger.
type logs struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

// Write is called by klog with one line.
func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	if drop := len(l.lines) - maxLogLines; drop > 0 {
		l.lines = l.lines[drop:]
	}
	return len(line), nil
}

// keepLogs collects the log until the test ends.
func keepLogs(tb testing.TB) {
	tb.Helper()
	l := &logs{}
	klog.SetOutput(l)
	tb.Cleanup(func() {
		klog.SetOutput(io.Discard)
		l.mu.Lock()
		defer l.mu.Unlock()
		if tb.Failed() {
			tb.Logf("the last of the log:\n%s", strings.Join(l.lines, ""))
		}
	})
}
