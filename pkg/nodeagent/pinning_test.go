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

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/nodeagent/kubelet"
)

// TestAStalledRecordHoldsUpNoContainer: nobody writes to the pipe in the checkpoint's
// place, as with a file system that does not answer. Each container that was made
// meanwhile used up the answer's whole time, and left a thread waiting for good.
func TestAStalledRecordHoldsUpNoContainer(t *testing.T) {
	path := filepath.Join(t.TempDir(), kubelet.CheckpointName)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil { // opens for whoever reads
			_ = f.Close()
		}
	})
	records := kubeletRecords(path, clock.RealClock{})
	before := runtime.NumGoroutine()
	for i := range 20 {
		done := make(chan error, 1)
		go func() {
			_, err := records()
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, kubelet.ErrStalled) {
				t.Fatalf("container %d: error %v, want %v", i, err, kubelet.ErrStalled)
			}
		case <-time.After(10 * time.Second): // a busy machine has part in it
			t.Fatalf("container %d: the record is still waited for", i)
		}
	}
	// A goroutine that has sent its result may not have ended yet.
	now := runtime.NumGoroutine()
	for deadline := time.Now().Add(10 * time.Second); now > before+1 && time.Now().Before(deadline); now = runtime.NumGoroutine() {
		time.Sleep(time.Millisecond)
	}
	if now > before+1 {
		t.Errorf("%d goroutines wait for the file, want one", now-before)
	}
}
