// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// replace writes a checkpoint of one container as kubelet does.
func replace(t *testing.T, path, uid string) {
	t.Helper()
	if err := os.WriteFile(path+".new", written(t, entry(uid, "c", "r", map[int64][]string{0: {"id"}})), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// of is whose container is recorded.
func of(r Recorded) string {
	if r == nil || len(*r) != 1 {
		return ""
	}
	return string((*r)[0].PodUID)
}

func TestRecordFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), CheckpointName)
	f := NewRecordFile(path, clock.RealClock{})
	read := func() (Recorded, error) { return f.Read(t.Context(), time.Minute) }
	if _, err := read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v, want fs.ErrNotExist to be visible", err)
	}
	replace(t, path, "first")
	first, err := read()
	if err != nil || of(first) != "first" {
		t.Errorf("got %v, %v", first, err)
	}
	if again, err := read(); err != nil || again != first {
		t.Errorf("the same file is another answer, %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); err == nil {
		t.Error("a broken file is taken")
	}
	replace(t, path, "second")
	if got, err := read(); err != nil || of(got) != "second" {
		t.Errorf("got %v, %v, want the new file", got, err)
	}
}

// TestRecordFileHang: a record file that hangs is given up. The file system answers the first look
// late, when kubelet has replaced the file already.
func TestRecordFileHang(t *testing.T) {
	path := filepath.Join(t.TempDir(), CheckpointName)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	f := NewRecordFile(path, clk)
	const patience = 50 * time.Millisecond
	stalled := make(chan error, 1)
	go func() {
		_, err := f.Read(t.Context(), patience)
		stalled <- err
	}()
	testkit.Soon(t, "the first look to be waited for", clk.HasWaiters)
	clk.Step(patience)
	if err := <-stalled; !errors.Is(err, ErrStalled) {
		t.Errorf("got %v, want %v", err, ErrStalled)
	}
	// Time stands still from here on: who comes after does not wait for what others waited for in vain.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := f.Read(ctx, patience); !errors.Is(err, ErrStalled) {
		t.Errorf("got %v, want %v", err, ErrStalled)
	}
	replace(t, path, "new")
	got := make(chan string, 1)
	go func() {
		r, _ := f.Read(t.Context(), time.Hour) // "" if it fails
		got <- of(r)
	}()
	if _, err := pipe.Write(written(t, entry("old", "c", "r", map[int64][]string{0: {"id"}}))); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	if uid := <-got; uid != "new" {
		t.Errorf("recorded is %q, want what kubelet wrote before the question", uid)
	}
}
