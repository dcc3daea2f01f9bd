// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
)

// TestStalledRecord: a stalled record holds up no container. Nobody writes to the pipe in the
// checkpoint's place, as with a file system that does not answer. Each container that was made
// meanwhile used up the answer's whole time, and left a thread waiting for good.
func TestStalledRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), kubelet.CheckpointName)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil { // opens for whoever reads
			_ = f.Close()
		}
	})
	clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	records := kubeletRecords(path, clk)
	before := runtime.NumGoroutine()
	for i := range 20 {
		done := make(chan error, 1)
		go func() {
			_, err := records()
			done <- err
		}()
		if i == 0 { // time stands still for those after it: they do not wait
			testkit.Soon(t, "the record to be waited for", clk.HasWaiters)
			clk.Step(pinningRecordWait)
		}
		select {
		case err := <-done:
			if !errors.Is(err, kubelet.ErrStalled) {
				t.Fatalf("container %d: error %v, want %v", i, err, kubelet.ErrStalled)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("container %d: the record is still waited for", i)
		}
	}
	// A goroutine that has sent its result may not have ended yet.
	testkit.Soon(t, "only one goroutine waits for the file", func() bool { return runtime.NumGoroutine() <= before+1 })
}
