// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"os"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

func TestCPUTimeOddName(t *testing.T) {
	const stat = "42 (a) R (b) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 7 7 20 0 1 0 100 0 0"
	got, err := parseCPUTime([]byte(stat))
	if err != nil || got != 3*time.Second {
		t.Errorf("%v, %v; want 3s", got, err)
	}
	if _, err := parseCPUTime([]byte("42 (a) R 1 2")); err == nil {
		t.Error("a short line was accepted")
	}
}

// TestOwnProcess: the own process is measured.
func TestOwnProcess(t *testing.T) {
	first, err := CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	testkit.Soon(t, "the CPU time of some work", func() bool { // in ticks, of which a busy machine grants few
		for i := range 1 << 24 {
			sum += i
		}
		used, err := CPUTime(os.Getpid())
		if err != nil || used < first {
			t.Fatalf("CPU time %v, %v; %v before", used, err, first)
		}
		return used > first
	})
	now, err := Resident(os.Getpid())
	if err != nil || now < 1<<20 {
		t.Errorf("memory %d, %v", now, err)
	}
	if peak, err := Peak(os.Getpid()); err != nil || peak < now {
		t.Errorf("peak memory %d, %v; %d before", peak, err, now)
	}
}
